"""Tests of record."""
