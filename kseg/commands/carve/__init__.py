"""``kseg carve``: record batches from images of disks, by their structure and their CRCs alone."""
