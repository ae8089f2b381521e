"""Statements about Kafka's formats, each shown by a command on a file."""
