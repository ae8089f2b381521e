"""What holds for every test: examples made at random are judged by what they show, not by how busy the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kseg", deadline=None)
settings.load_profile("kseg")
