"""Programs that print what client libraries read."""
