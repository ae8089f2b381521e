"""``python -m bench.spark``: kseg on Spark next to Spark's own ways to the same rows, in one warm session."""
