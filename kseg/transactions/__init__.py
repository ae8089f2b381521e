"""The transactions of a partition: which were aborted, for readers; what became of each, for people."""
