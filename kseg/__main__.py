"""``python -m kseg``, and the script ``kseg``."""

import _signal as signal  # type: ignore[import-not-found]  # quicker to import than signal
import sys

# Until the command line handles signals, Ctrl-C ends the process as SIGTERM does: without a traceback of an import.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

if sys.version_info < (3, 11):  # noqa: UP036 (a clone runs without pip, which would check it)
    print("kseg: needs Python 3.11 or newer", file=sys.stderr)
    sys.exit(2)

from kseg.engine import missing_library

try:
    from kseg.cli.main import main as main
except ModuleNotFoundError as error:  # click is missing: an installation without its dependencies
    print(f"kseg: {missing_library(error)}", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    main(prog_name="kseg")
