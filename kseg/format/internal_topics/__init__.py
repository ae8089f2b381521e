"""Records of Kafka's internal topics, and the effective state that they result in."""
