"""Spark jobs behind the command line's --spark, the audits and ``write_segments``."""
