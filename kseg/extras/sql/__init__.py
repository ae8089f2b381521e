"""SQL over the views of logs, run by DuckDB."""
