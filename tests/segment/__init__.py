"""Tests of segment."""
