"""Files: sources, folders, atomic writes, worker processes, rate limits."""
