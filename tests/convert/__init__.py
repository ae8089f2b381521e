"""Tests of convert."""
