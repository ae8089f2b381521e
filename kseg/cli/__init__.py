"""The command line: options, messages and exit codes only."""

import gc

# What is imported stays, and the loops leave no cycles: collecting every 700 objects is a tenth of a short run.
gc.set_threshold(50_000)
