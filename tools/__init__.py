"""Generators of documentation, fixtures and definitions, and the real Kafka that tests run against."""
