"""Tests of writer."""
