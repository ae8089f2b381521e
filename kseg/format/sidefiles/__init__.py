"""The side files of segments, partitions and log directories: one decoder each, and their registry."""
