"""What several test modules share: fixtures, damaged files, generated logs, and ways to run kseg."""
