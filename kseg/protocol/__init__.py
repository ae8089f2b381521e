"""Kafka's own messages, the fields of its protocol and of its internal topics: their definitions, and one reader for all."""
