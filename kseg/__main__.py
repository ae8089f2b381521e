"""``python -m kseg``, and the script ``kseg``."""

import sys

from kseg.lazy import missing_library

try:
    from kseg.cli.main import main
except ModuleNotFoundError as error:  # click is missing: an installation without its dependencies
    print(f"kseg: {missing_library(error)}", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    main(prog_name="kseg")
