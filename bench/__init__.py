"""Whole processes side by side: kseg against its floor and its peers. Run it with ``python -m bench``."""
