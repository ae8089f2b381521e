"""``kseg recovery``: predict the actions of a broker on its log directories at its start."""
