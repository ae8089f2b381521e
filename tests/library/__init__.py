"""Tests of the public library."""
