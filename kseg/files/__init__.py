"""Sources and outputs: paths, standard input, URLs, folders, process pools, and atomic writes."""
