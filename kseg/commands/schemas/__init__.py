"""``kseg schemas``: the schemas of a registry from its topic, and which of them data use."""
