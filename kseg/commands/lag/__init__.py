"""``kseg lag``: the lag of consumer groups, from the files of the brokers."""
