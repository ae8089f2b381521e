"""Keep the documentation equal to the program: ``python -m tools.docs`` checks, ``--write`` updates.

The commands in README.md and docs/ are run, and their output is compared. Tables, pages of rules and commands, pictures and
man pages are generated.
"""
