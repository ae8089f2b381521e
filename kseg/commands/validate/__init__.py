"""``kseg validate``: every check of segments, side files and partitions."""
