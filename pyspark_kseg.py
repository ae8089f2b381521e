"""Spark finds ``format("kseg")`` by this module's name: it looks through all that are named ``pyspark_*``.

One of them that raises would turn that search off for all: where kseg's part can't be imported, it is not there.
"""

from contextlib import suppress

with suppress(Exception):
    from kseg.spark.data_source import KsegDataSource as DefaultSource  # noqa: F401
