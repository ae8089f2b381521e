"""``kseg adopt``: a cluster that starts, from the log directories of its brokers alone."""
