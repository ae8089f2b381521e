"""Tests of ``kseg pipeline``."""
