"""HTML pages: each is one file that needs no other, to read, print, mail or attach to an incident."""
