"""Where bytes come from and go to: paths, standard input, URLs, folders, and outputs that appear whole or not at all."""
