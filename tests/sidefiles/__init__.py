"""Tests of sidefiles."""
