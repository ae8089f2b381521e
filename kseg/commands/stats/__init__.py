"""``kseg stats``: the content of segments in numbers."""
