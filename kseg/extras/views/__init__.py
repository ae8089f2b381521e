"""The views of logs as Arrow record batches: records, batches, findings, segments and transactions."""
