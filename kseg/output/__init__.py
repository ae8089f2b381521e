"""The writers of all results, for people and for programs: one per command and format."""
