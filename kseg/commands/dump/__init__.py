"""``kseg dump``: the rows of segments, in any range, also while the segments grow."""
