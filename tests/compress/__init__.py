"""Tests of compress."""
