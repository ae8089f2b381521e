"""The transactions of a partition: ``kseg transactions``, and the aborted spans for read_committed readers."""
