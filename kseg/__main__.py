from kseg.cli import main

main(prog_name="kseg")
