"""``kseg repair``: copy the valid batches of damaged segments into segments that a broker accepts."""
