"""``kseg grep``: find records by patterns in their keys, values and headers."""
