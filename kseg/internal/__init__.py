"""What Kafka's internal topics come to: the latest state by key, and what takes the space."""
