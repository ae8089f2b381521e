"""``kseg validate PATH`` with as many processes as there are cores, however little there is to read."""

from __future__ import annotations

import sys

from kseg.cli.main import main
from kseg.format.segment import several_processes

several_processes.BEGIN_ALONE = False
sys.argv[1:1] = ["validate"]
main(prog_name="kseg")
