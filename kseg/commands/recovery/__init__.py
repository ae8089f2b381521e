"""``kseg recovery``: predict what a broker would do with its log directories at its start."""
