"""What the benchmark starts as processes of their own, each printing one JSON object of what it counted."""
