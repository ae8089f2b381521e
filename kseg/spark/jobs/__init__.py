"""The Spark jobs of ``--spark``, of the audits and of ``write_segments``."""
