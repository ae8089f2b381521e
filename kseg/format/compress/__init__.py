"""Kafka's compression codecs, with limits."""
