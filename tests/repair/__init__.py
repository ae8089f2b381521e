"""Tests of repair."""
