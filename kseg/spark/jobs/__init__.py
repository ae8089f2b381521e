"""The Spark jobs of ``--spark`` and of ``df.write``."""
