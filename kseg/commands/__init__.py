"""One room per command, each usable as a library. Rooms of commands do not import each other."""
