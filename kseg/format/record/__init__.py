"""Record batches of all versions: layouts, and the loops that read and write them."""
