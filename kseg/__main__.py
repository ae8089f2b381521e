"""``python -m kseg``."""

from kseg.cli.main import main

main(prog_name="kseg")
