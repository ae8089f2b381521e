"""``kseg diff``: compare two replicas of a partition."""
