"""What holds for every test: it is judged by what it shows, not by how busy the machine is, nor by who started it."""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("kseg", deadline=None)
settings.load_profile("kseg")

# A shell starts what it puts in the background deaf to Ctrl-C, and all that this starts would be deaf, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
