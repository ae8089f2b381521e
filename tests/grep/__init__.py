"""Tests of grep."""
