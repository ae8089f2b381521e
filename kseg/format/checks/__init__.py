"""The checks of batches and records, which validate, dump, repair and Spark share."""
