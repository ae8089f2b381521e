"""The Spark data source: planning, reading and streaming."""
