"""Programs that the benchmark runs as processes. Each prints its counts as one JSON object."""
