"""The effective state of Kafka's internal topics: the latest value of each key, and the space used per key."""
