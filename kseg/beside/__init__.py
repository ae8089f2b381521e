"""The files beside a log: a decoder each, and the table that knows them by their names."""
