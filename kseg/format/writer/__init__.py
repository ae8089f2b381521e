"""Build batches, and read segments in the order in which they are written again."""
