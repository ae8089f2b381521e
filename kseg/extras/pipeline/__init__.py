"""The rooms of ``kseg pipeline``: segments are listed, checked, and loaded into tables by offsets."""
