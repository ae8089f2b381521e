"""Bytes that are no log: record sets without a file, protocol frames off the wire, the message of a tutorial."""
