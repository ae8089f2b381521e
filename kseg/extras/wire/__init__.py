"""Bytes other than a log: requests, responses, record sets and single messages."""
