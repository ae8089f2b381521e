"""``kseg transactions``: the transactions of a partition."""
