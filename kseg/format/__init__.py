"""What the bytes of a log mean: the layouts of v0, v1 and v2, and the hot loops that read and write them."""
