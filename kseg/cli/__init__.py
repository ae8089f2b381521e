"""The command line: options, messages and exit codes only."""
