"""Every check: within a segment, over its records, against its neighbours and the files beside it."""
