"""A segment as a stream: framed, found again behind damage, opened to records; and the rows by which it is shown."""
