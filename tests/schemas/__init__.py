"""Tests of the command schemas."""
