"""``kseg diff``: compare the replicas of partitions."""
