"""Tests of dump."""
