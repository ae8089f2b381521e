"""Kafka's messages, of its protocol and its internal topics: their definitions and one reader for all of them."""
