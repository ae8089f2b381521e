"""``kseg explain``: the content of a file of Kafka, with the first batch or entry of each kind field by field."""
