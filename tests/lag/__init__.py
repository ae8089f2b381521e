"""Tests of lag."""
