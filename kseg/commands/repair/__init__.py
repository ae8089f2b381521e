"""``kseg repair``: write what is valid in damaged segments as segments that a broker accepts."""
