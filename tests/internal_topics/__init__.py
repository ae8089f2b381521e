"""Tests of internal_topics."""
