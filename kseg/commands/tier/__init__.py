"""``kseg tier``: partitions from tiered storage as folders, and the objects of a bucket compared with its metadata."""
