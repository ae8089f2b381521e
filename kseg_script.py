"""The start of the script ``kseg``, outside of the package: Ctrl-C must not print a traceback of the package's imports."""

import _signal as signal  # type: ignore[import-not-found]  # quicker to import than signal

# Until the command line handles signals, Ctrl-C ends the process as SIGTERM does.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from kseg.__main__ import main as main
