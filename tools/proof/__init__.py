"""What kseg promises, measured: hostile files, growth, and random damage. Each tool writes its figures into a file."""
