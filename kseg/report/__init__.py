"""Writers of results: one per format and kind of result."""
