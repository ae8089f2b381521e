"""Two replicas of a partition side by side."""
