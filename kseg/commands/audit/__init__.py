"""``kseg audit``: questions to many log directories at once."""
