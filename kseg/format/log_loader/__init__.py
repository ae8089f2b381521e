"""A model of how a broker loads a partition's log at its start (Kafka's ``LogLoader``)."""
