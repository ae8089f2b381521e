"""``kseg convert``: convert segments, partitions and log directories between record versions."""
