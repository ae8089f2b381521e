"""``kseg lag``: the committed offsets of groups next to the log ends of their partitions, now and over time."""
