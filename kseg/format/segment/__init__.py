"""Read a log segment: find its batches, continue after damage, decode its records."""
