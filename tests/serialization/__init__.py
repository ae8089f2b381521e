"""Tests of serialization."""
