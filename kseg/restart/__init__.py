"""What a broker started on a log dir now would do to it: a model of Kafka's log recovery."""
