"""The Spark jobs of ``--spark`` and of ``write_segments``."""
