"""What the bytes of a log and of its side files mean: reading and writing each format."""
