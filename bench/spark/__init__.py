"""``python -m bench.spark``: kseg on Spark beside Spark's own ways to the same rows, in one warm session."""
