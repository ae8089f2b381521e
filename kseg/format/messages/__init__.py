"""Kafka's protocol and metadata messages: their definitions, and one reader for all of them."""
