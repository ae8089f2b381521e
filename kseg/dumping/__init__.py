"""Segments as rows and lines, from which byte to which, and on as they grow."""
