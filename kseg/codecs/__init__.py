"""The codecs of record batches as Kafka has them, under limits."""
