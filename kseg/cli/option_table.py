"""The options of all commands: one row each, so that an option has one name, one type and one meaning in all of them.

A command has the options that are fields of its class (see ``typed_command``). ``CELLS`` has the differences in a
command, and ``ABSENT`` which commands lack an option that most have, both with the reason. The help, the documentation and
the completion are made of these tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import click

from kseg.cli import common
from kseg.cli.common import Choice, InputPath, OutputFolder, OutputPath, Parsed, WholeNumber, text_like
from kseg.commands.adopt import adoption
from kseg.commands.carve import carving
from kseg.commands.grep import matches, partitioners
from kseg.extras.sql import recipes
from kseg.format.compress import codecs
from kseg.format.internal_topics import state
from kseg.format.log_loader import log_segment
from kseg.format.record import layout
from kseg.format.record.layout import INT32_MAX
from kseg.format.segment import framed_files
from kseg.format.storage import file_access
from kseg.format.storage.naming import ID, INTERNAL_TOPICS
from kseg.report.formats import VALIDATION
from kseg.text import TIMES, parse_offsets, parse_partition_offsets, parse_time_or_word


class OptionRow(NamedTuple):
    """An option: its names as a user writes them (``-o --output``, ``--deep/--shallow``), and its help text.

    An option without ``metavar`` and ``type`` is a flag. ``type`` returns the type of its value, text by default; a
    ``default`` can be a function. A value in ``neutral`` means the same as no option.
    """

    names: str
    help: str
    metavar: str | None = None
    type: Callable[[], click.ParamType[Any]] | None = None
    default: object = None
    multiple: bool = False
    show_default: bool = False
    neutral: tuple[object, ...] = ()
    hidden: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether the option has no value."""
        return self.metavar is None and self.type is None


def _number(least: int, most: int | None = None) -> Callable[[], click.ParamType[Any]]:
    return lambda: WholeNumber(least, most)


#: Group -> field -> option, in the order of the help.
_BY_GROUP: Mapping[str, Mapping[str, OptionRow]] = {
    "Search": {
        "patterns": OptionRow("-e --regexp", "Search this pattern. All arguments are PATHs.", "PATTERN", multiple=True),
        "literal": OptionRow("-F --fixed-strings", "Search texts, not regular expressions."),
        "ignore_case": OptionRow("-i --ignore-case", "Ignore case."),
        "whole": OptionRow("-x --whole", "Match whole fields only."),
        "invert": OptionRow("-v --invert-match", "Show the records without a match."),
        "fields": OptionRow("--in", "Search these fields: key,value,header-key,header-value. Default: all; with "
            "--json-path the value.", "FIELDS", lambda: Parsed(common.field_names, lambda: matches.FIELDS)),
        "json_paths": OptionRow("--json-path", "Search JSON at a path, such as $.order.id=17. Repeated: records with all "
            "of them.", "PATH[=VALUE]", lambda: Parsed(matches.parse_json_path), multiple=True),
    },
    "Select": {
        "deep": OptionRow("--deep/--shallow", "Read records, or only headers and CRCs. Default: deep.", default=True),
        "framings": OptionRow("--as", "Read PATHs as this kind of file. Once, or once per PATH.",
            type=lambda: Choice(list(framed_files.FRAMINGS)), multiple=True),
        "offsets": OptionRow("--offsets", "Show offsets from A to before B; also A:, :B, A or A..B.", "A:B",
            lambda: Parsed(parse_offsets)),
        "since": OptionRow("--since", "Show rows from TIME: ISO 8601, 2h, yesterday, epoch ms.", "TIME",
            lambda: Parsed(parse_time_or_word, lambda: TIMES)),
        "until": OptionRow("--until", "Show rows before TIME.", "TIME", lambda: Parsed(parse_time_or_word, lambda: TIMES)),
        "position": OptionRow("--position", "Show the batch or the damage that contains byte N of the file.", "N",
            _number(0)),
        "keys": OptionRow("--key", "Show records with exactly this key. Repeatable.", "TEXT", lambda: Parsed(os.fsencode),
            multiple=True),
        "key_hex": OptionRow("--key-hex", "The same, in hexadecimal.", "HEX", lambda: Parsed(common.hex_bytes),
            multiple=True),
        "key_int32": OptionRow("--key-int32", "The same, as an int of Kafka's IntegerSerializer.", "N",
            lambda: Parsed(partial(common.integer_bytes, 4)), multiple=True),
        "key_int64": OptionRow("--key-int64", "The same, as a long of Kafka's LongSerializer.", "N",
            lambda: Parsed(partial(common.integer_bytes, 8)), multiple=True),
        "null_key": OptionRow("--null-key", "Show records whose key is null."),
        "null_value": OptionRow("--null-value", "Show records whose value is null."),
        "headers": OptionRow("--header", "Show records with this header. Repeated: records with all of them.", "NAME=VALUE",
            lambda: Parsed(common.header_and_value), multiple=True),
        "where": OptionRow("--where", "Show records that fulfil a condition in SQL, such as 'value.total > 100'. Needs "
            "DuckDB.", "CONDITION"),
        "isolation": OptionRow("--isolation", "Show what consumers with this isolation level get.",
            type=lambda: Choice(list(layout.ISOLATIONS)), default=layout.READ_UNCOMMITTED,
            show_default=True, neutral=(layout.READ_UNCOMMITTED,)),
        "producer_id": OptionRow("--producer-id", "Show batches of this producer.", "N", lambda: click.INT),
        "control": OptionRow("--control/--no-control", "Show only control records, or none."),
        "group": OptionRow("--group", "Show this group. Repeatable.", "GROUP", multiple=True),
        "at": OptionRow("--at", "Show the state at this time, or after this offset, not the last one.", "OFFSET|TIME",
            lambda: Parsed(lambda text: state.Moment.parse(text), lambda: TIMES)),
        "offset_map": OptionRow("--offset-map", "Write the offsets of another cluster: lines of JSON with topic, partition, "
            "src_first, src_last and dst_first.", "FILE", InputPath),
        "history": OptionRow("--history", "Show commits, appends and lag of this group by minute.", "GROUP"),
        "txn": OptionRow("--txn", "Show the records of this transactional id.", "ID"),
        "states": OptionRow("--state", "List transactions in this state. Repeatable.",
            type=lambda: Choice(["hanging", "open", "unknown", "aborted", "committed"]), multiple=True,
            default=("hanging", "open", "unknown", "aborted"), show_default=True),
        "max_age": OptionRow("--max-age", "Set the age from which an open transaction is hanging.", "SECONDS", _number(0),
            900, show_default=True),
        "partitioner": OptionRow("--partitioner", "Read only the partition that this partitioner chooses for a key. "
            "Default: all.", type=lambda: Choice(list(partitioners.PARTITIONERS))),
        "partitions": OptionRow("--partitions", "Set the topic's number of partitions, to read only that of the key, group "
            "or id.", "N", _number(1)),
        "only": OptionRow("--partition", "Take only this partition. Repeatable.", "TOPIC-N", multiple=True),
        "all_partitions": OptionRow("--all-partitions", "Read all partitions for a key: the default.", hidden=True),
        "used_by": OptionRow("--used-by", "Count the ids in these data, and list those without a schema.", "PATH",
            InputPath, multiple=True),
        "follow": OptionRow("--follow", "Wait for new batches and segments until Ctrl-C."),
        "statement_file": OptionRow("--file", "Read the statement from FILE.", "FILE", InputPath),
        "recipe": OptionRow("--recipe", "Run a statement of --recipes.", "NAME", lambda: Choice(list(recipes.RECIPES))),
        "recipes": OptionRow("--recipes", "List the statements that have a name."),
        "tables": OptionRow("--tables", "Show the tables and their columns."),
        "before": OptionRow("-B --before-context", "Show N records before a match.", "N", _number(0, 10_000)),
        "after": OptionRow("-A --after-context", "Show N records after a match.", "N", _number(0, 10_000)),
        "context": OptionRow("-C --context", "Show N records before and after a match.", "N", _number(0, 10_000), 0),
        "max_count": OptionRow("-m --max-count", "Stop after N matches per file.", "N", _number(1)),
    },
    "Check": {
        "no_crc": OptionRow("--no-crc", "Do not check CRCs."),
        "rule": OptionRow("--rule", "Set the severity of a rule, or ignore it. Repeatable.", "NAME=SEVERITY",
            lambda: Parsed(str, common.severity_settings), multiple=True),
        "fail_on": OptionRow("--fail-on", "Exit with 1 from this severity on.",
            type=lambda: Choice(["error", "warning", "info", "never"]), default="error", show_default=True),
        "baseline": OptionRow("--baseline", "Known findings, or a repair's report: ignored for the exit code.", "FILE",
            InputPath),
        "write_baseline": OptionRow("--write-baseline", "Write the findings of this run to FILE as known.", "FILE",
            lambda: OutputPath(stdout=False)),
        "max_message_bytes": OptionRow("--max-message-bytes", "Report larger batches as errors. Default: warn at 1048588.",
            "N", _number(1)),
        "compacted": OptionRow("--compacted", "Check the log of a compacted topic: all records need a key."),
        "timestamp_before_max_ms": OptionRow("--timestamp-before-max-ms", "Report records that are older as errors.", "N",
            _number(0)),
        "timestamp_after_max_ms": OptionRow("--timestamp-after-max-ms", "Report timestamps farther ahead as errors. "
            "Default: warn at one hour.", "N", _number(0)),
        "compression_type": OptionRow("--compression-type", "Codec of the topic, for --as requests. Default: producer.",
            type=lambda: Choice(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]), default="producer",
            neutral=("producer",)),
        "by_key": OptionRow("--by-key", "Compare the last value of each key: for backups of compacted topics."),
        "clean": OptionRow("--clean/--unclean", "Assume this shutdown. Default: .kafka_cleanshutdown."),
        "allow": OptionRow("--allow", "Accept this difference. Repeatable.",
            type=lambda: Choice(["starts-later", "ends-earlier", "missing", "missing-partition"]), multiple=True),
    },
    "Change": {
        "compression": OptionRow("--compression", "Compress all batches with this codec.",
            type=lambda: Choice(["keep", *(codec.name for codec in codecs.CODECS.values())]), default="keep",
            show_default=True),
        "rebatch": OptionRow("--rebatch", "Pack records into batches of BYTES, before compression.", "BYTES", _number(1)),
        "lossy": OptionRow("--lossy", "Allow an older version, and list the lost fields."),
        "for_another_cluster": OptionRow("--for-another-cluster", "Write leader epoch 0 and only committed, not deleted "
            "records, without producer ids, transactions and markers. Offsets stay."),
        "keep_producers": OptionRow("--keep-producers", "Keep producer ids, sequences, transactions and markers."),
        "skip_damaged": OptionRow("--skip-damaged", "Skip damaged batches. Exit code 1 if there are any."),
        "dry_run": OptionRow("--dry-run", "Write only the report. DST can be omitted."),
        "stage": OptionRow("--stage", "End a run after this stage. Default: report.",
            type=lambda: Choice(["list", "check", "quarantine", "load", "report"]), default="report"),
        "replayed_topic": OptionRow("--topic", "Replay the table of this topic.", "TOPIC"),
        "nodes": OptionRow("--node", "Take these log directories as those of a node. Repeatable.", "ID=DIR[,DIR]",
            lambda: Parsed(common.node_and_folders), multiple=True),
        "controllers": OptionRow("--controller", "Make a node that is only a controller. Repeatable.", "ID",
            _number(0, INT32_MAX), multiple=True),
        "metadata": OptionRow("--metadata", "Take configurations from this metadata log, the folder __cluster_metadata-0.",
            "DIR", InputPath),
        "no_metadata": OptionRow("--no-metadata", "Guess configurations, even if there is a metadata log."),
        "release": OptionRow("--release", "Write metadata for this release. Default: as before, or 3.9.",
            type=lambda: Choice(list(adoption.RELEASES))),
        "cluster_id": OptionRow("--cluster-id", "Set the id of the cluster. Default: a new one.", "ID",
            lambda: text_like(ID, "expected 22 characters of A-Z, a-z, 0-9, - and _")),
        "deleted": OptionRow("--deleted", "Bring back folders of deleted topics (-delete) and strays (-stray), too."),
        "guess": OptionRow("--guess", "Join what is only likely one partition, too: each link is marked as a guess."),
        "block_size": OptionRow("--block-size", "Set the size of the file system's blocks. Default: 4096.", "BYTES",
            lambda: Parsed(common.block_size, lambda: map(str, carving.BLOCKS)), lambda: carving.BLOCKS[0]),
        "prefer": OptionRow("--prefer", "Where replicas diverge, take the batches of this one.", "REPLICA"),
        "salvage_records": OptionRow("--salvage-records", "Keep the readable records of a faulty batch."),
        "indexes_only": OptionRow("--indexes-only", "Write only index files to DST, for an undamaged log."),
        "force": OptionRow("--force", "Replace DST and its indexes."),
        "index_interval": OptionRow("--index-interval", "Set index.interval.bytes of the topics.", "BYTES", _number(0),
            4096, show_default=True),
        "index_bytes": OptionRow("--index-bytes", "Set segment.index.bytes of the topics.", "BYTES", _number(12),
            lambda: log_segment.INDEX_BYTES, show_default=True),
        "install": OptionRow("--install", "Install the script for this user."),
    },
    "Decode": {
        "encoding": OptionRow("--bytes", "Set the encoding of keys and values.",
            type=lambda: Choice(["auto", "utf8", "hex", "base64"]), default="auto", show_default=True),
        "decode": OptionRow("--decode", "Decode records as those of an internal topic, such as __consumer_offsets, in any "
            "folder.", "TOPIC", lambda: Parsed(common.topic_name, lambda: INTERNAL_TOPICS)),
        "no_decode": OptionRow("--no-decode", "Do not decode records of internal topics."),
        "effective": OptionRow("--effective", "Show the effective state of internal topics: the latest value per key, and "
            "the space used. Formats: table, jsonl."),
        "key_as": OptionRow("--key-as", "Decode keys as int32, string, avro, time-windowed:TYPE, …", "TYPE",
            lambda: Parsed(str, common.deserializers)),
        "value_as": OptionRow("--value-as", "Decode values as json, avro, protobuf, msgpack, cbor, …", "TYPE",
            lambda: Parsed(str, common.deserializers)),
        "schemas": OptionRow("--schemas", "Read schemas from the segments of a registry's topic _schemas.", "PATH",
            InputPath, multiple=True),
        "schema_files": OptionRow("--schema-file", "Read a schema from a file, for a subject or an id.", "[NAME=]FILE",
            lambda: InputPath(named=True), multiple=True),
        "registry": OptionRow("--registry", "Ask a schema registry for schemas.", "URL"),
        "registry_ca": OptionRow("--registry-ca", "Trust the certificates in FILE for --registry.", "FILE", InputPath),
        "kek": OptionRow("--kek", "Decrypt objects of tiered storage with this private key (PEM). Default: $KSEG_KEK.",
            "FILE", InputPath, multiple=True),
        "function": OptionRow("--decoder", "Decode keys and values with a Python function.", "MODULE:FUNCTION"),
        "unwrap": OptionRow("--unwrap", "Show the content of envelopes of Connect, Debezium and CloudEvents."),
    },
    "Output": {
        "format": OptionRow("--format", "Set the format.", type=lambda: Choice([]), show_default=True),
        "output": OptionRow("-o --output", "Write to FILE instead of stdout, atomically.", "FILE", OutputPath,
            neutral=("-",)),
        "verbose": OptionRow("-v --verbose", "List everything, with the valid parts."),
        "quiet": OptionRow("-q --quiet", "Print only findings and totals."),
        "count": OptionRow("-c --count", "Show only the number of matches per file."),
        "files_only": OptionRow("-l --files-with-matches", "Show only the files with matches."),
        "only_matching": OptionRow("--only-matching", "Show only the matching texts."),
        "limit": OptionRow("--limit", "Stop after N rows.", "N", _number(0)),
        "top_keys": OptionRow("--top-keys", "List the keys with the most bytes on disk, an estimate. Implies --deep."),
        "last": OptionRow("--last", "Show only the last N rows of each partition.", "N", _number(1)),
        "columns": OptionRow("--columns", "Show these columns of a table or of CSV: a,b,c.", "NAMES",
            common.ColumnNames),
        "template": OptionRow("--template", "Write a line for each record, such as '%o %k %{headers}'.", "TEXT",
            lambda: text_like(".+", "it is empty: write what a line contains, such as '%o %k %v'")),
        "full": OptionRow("--full", "Do not cut texts on a terminal."),
        "reports": OptionRow("--report", "Also write a report to FILE. Repeat it for several.", "FORMAT=FILE",
            lambda: OutputPath(named=True, names=VALIDATION.writers), multiple=True),
        "html": OptionRow("--html", "Also write the answers, findings and counts as a page to FILE.", "FILE", OutputPath),
        "redact": OptionRow("--redact", "Show hashes instead of paths, topics and the host."),
        "label": OptionRow("--label", "Add a label to the series of --format prometheus. Repeatable.", "NAME=VALUE",
            lambda: Parsed(common.metric_label), multiple=True),
        "help_uri": OptionRow("--help-uri", "Link rules of --format sarif to URL, which has {code} or {name}.", "URL",
            lambda: text_like(r"(?=.*://).*\{(code|name)\}.*",
            "expected a URL with {{code}} or {{name}} of the rule, got {!r}")),
        "export_to": OptionRow("--export", "Write the records of A that B lacks as segments to DIR.", "DIR", OutputFolder),
        "inventory": OptionRow("--inventory", "Write findings and segments as Parquet to DIR.", "DIR", OutputFolder),
        "export": OptionRow("--export", "Write what registers the schemas in a registry in IMPORT mode."),
        "export_records": OptionRow("--export-records", "Write the topic's records for a producer: a line with key, tab "
            "and value, empty for null."),
    },
    "Speed": {
        "jobs": OptionRow("--jobs", "Run N processes. Default: number of cores.", "N", _number(1, common.MAX_JOBS),
            common.cores, neutral=(1,)),
        "max_rate": OptionRow("--max-rate", "Limit reading, in all processes together, such as 50M.", "BYTES/s",
            lambda: Parsed(file_access.parse_rate)),
        "memory": OptionRow("--memory", "Limit the memory of DuckDB. Default: 32, then 128 MiB.", "MIB", _number(16)),
        "cache": OptionRow("--cache", "Store results in FILE. The next run skips unchanged files.", "FILE",
            lambda: OutputPath(stdout=False)),
        "spark": OptionRow("--spark", "Run on Spark: local[*], spark://… or yarn.", "MASTER"),
        "spark_conf": OptionRow("--spark-conf", "Set a setting of Spark, such as spark.executor.memory=4g. Repeatable.",
            "NAME=VALUE", lambda: text_like(r"spark\..*=.*", "expected NAME=VALUE with a name of Spark, such as "
            "spark.executor.memory=4g, got {!r}"), multiple=True),
        "packages": OptionRow("--packages", "Add a Maven package to Spark: GROUP:NAME:VERSION. Repeatable.", "PACKAGE",
            multiple=True),
    },
}  # fmt: skip
ROWS: Mapping[str, OptionRow] = {field: row for rows in _BY_GROUP.values() for field, row in rows.items()}
#: The groups of options, in the order of the help.
GROUPS = tuple(_BY_GROUP)
_GROUPS = {field: group for group, rows in _BY_GROUP.items() for field in rows}


def group_of(field: str | None) -> str:
    return _GROUPS.get(field or "", "Options")


class Cell(NamedTuple):
    """The differences of a command from the row of an option, and ``why``."""

    why: str
    help: str | None = None
    default: object = ...
    multiple: bool | None = None
    least: int | None = None
    metavar: str | None = None
    type: Callable[[], click.ParamType[Any]] | None = None


#: (command, field) -> the difference.
CELLS: Mapping[tuple[str, str], Cell] = {
    ("dump", "deep"): Cell("it lists batches by default, and records if an option needs them",
                           "Show records or batches. Default: shallow.", None),
    ("stats", "deep"): Cell("headers have most counts", "Read all records, or headers only. Default: shallow.", False),
    ("diff", "limit"): Cell("a diverged replica differs everywhere", "List at most N differences of each kind.", 16),
    ("validate", "limit"): Cell("a damaged file can have a finding per record", "List at most N findings per rule and file.",
                                16, least=1),
    ("doctor", "limit"): Cell("as validate", "List at most N findings per rule and file.", 16, least=1),
    ("sql", "inventory"): Cell("validate writes it, and this command reads it",
                               "Skip the parts of segments that cannot have the rows. See validate.", metavar="PATH",
                               type=InputPath),
    ("stats", "limit"): Cell("its lists are those of producers and keys", "List the N largest producers and keys.", 10),
    ("dump", "group"): Cell("one group is in one partition of the internal topic", "Show the records of this group.",
                            multiple=False),
    ("lag", "at"): Cell("a lag is that of a time", "Show the state at this time, not the last one.", metavar="TIME"),
    ("lag", "since"): Cell("a lag has no time", "Begin the history at TIME: ISO 8601, 2h, yesterday, epoch ms."),
    ("lag", "until"): Cell("a lag has no time", "End the history before TIME."),
    ("adopt", "output"): Cell("its result is a folder", "Write the new cluster to this folder, which must not exist.",
        metavar="DIR", type=OutputFolder),
    ("tier", "skip_damaged"): Cell("chunks are damaged, not batches",
        "Write 0xff for chunks that cannot be decoded. Exit code 1 if there are any."),
    ("tier", "output"): Cell("its result is a folder", "Write fetched partitions to this folder, which must not exist.",
        metavar="DIR", type=OutputFolder),
    ("adopt", "format"): Cell("its result is a folder", "Set the format of the plan."),
    ("carve", "output"): Cell("its result is a folder", "Write the groups to this folder, which must not exist.",
        metavar="DIR", type=OutputFolder),
    ("carve", "format"): Cell("its result is a folder", "Set the format of the report."),
    ("repair", "rule"): Cell("a repair has no exit code for a severity",
                             "Set the severity of a rule. Errors drop the batch. Repeatable."),
    ("grep", "quiet"): Cell("as in grep: the exit code is the answer", "Show nothing, and stop at the first match."),
    ("schemas", "registry"): Cell("its schemas are those of the topic", "Compare the topic with a registry."),
    ("repair", "output"): Cell("its result is DST", "Write the report to FILE instead of stdout, atomically."),
    ("repair", "format"): Cell("its result is DST", "Set the format of the report."),
    ("convert", "format"): Cell("its result is DST", "Set the format of the summary."),
    ("pipeline", "offsets"): Cell("a table has several partitions",
                                  "Replay offsets A to before B, of partition P or of all.", metavar="[P:]A:B",
                                  type=lambda: Parsed(parse_partition_offsets)),
    ("pipeline", "dry_run"): Cell("its output is a table", "Show the rows that a replay would replace; write nothing."),
}  # fmt: skip


#: In ``ABSENT``: all other commands without the option.
OTHERS = "others"
_NO_FILES = "it reads no files"
_NO_RECORDS = "it does not show records"
_PURPOSE = "its purpose sets what is read"
_NO_CONTENT = "it does not show keys and values"
_WHOLE = "it is about whole partitions"
#: Field of an option that several commands have -> commands without it, with the reason.
ABSENT: Mapping[str, Mapping[str, str]] = {
    "deep": {
        "pipeline": "it loads records, and checks all of them",
        "grep": "it always reads records",
        "sql": "the tables and columns of the statement show what is read",
        **dict.fromkeys(("recovery", "repair", "convert"), _PURPOSE),
        **dict.fromkeys(("transactions", "lag", "schemas"), _PURPOSE),
        OTHERS: _NO_FILES,
        "explain": "it reads the first entry of each kind",
    },
    "inventory": {"pipeline": "its state has an inventory of its own", OTHERS: "it does not show views of segments"},
    "framings": {OTHERS: "its files are segments and folders of a broker", "rules": _NO_FILES},
    "dry_run": {"adopt": "without -o it shows the plan", OTHERS: "only these commands have a preview"},
    "offsets": {"sql": "a condition on offset, where the statement filters", OTHERS: _WHOLE},
    "since": {"sql": "a condition on timestamp, where the statement filters", OTHERS: _WHOLE},
    "until": {"sql": "a condition on timestamp, where the statement filters", OTHERS: _WHOLE},
    "keys": {"sql": "a condition on key, where the statement filters", OTHERS: _NO_RECORDS},
    "where": {"sql": "the statement has conditions", OTHERS: _NO_RECORDS},
    "headers": {"sql": "a condition on headers, where the statement filters", OTHERS: _NO_RECORDS},
    "isolation": {OTHERS: _NO_RECORDS},
    "group": {OTHERS: "it does not read what groups commit"},
    "at": {OTHERS: "it does not show the state of an internal topic"},
    "max_age": {OTHERS: "it does not look for hanging transactions"},
    "partitions": {OTHERS: "it reads all partitions of its paths"},
    "no_crc": {
        **dict.fromkeys(("diff", "transactions", "lag", "schemas"), "its answer would use bytes that a consumer rejects"),
        **dict.fromkeys(("doctor", "recovery"), "a broker checks CRCs at its start"),
        **dict.fromkeys(("convert", "repair"), "what it writes has proved CRCs"),
        "explain": "it shows the stored CRC and the computed one",
        "pipeline": "rows of a table have proved CRCs",
        OTHERS: _NO_FILES,
    },
    "rule": {OTHERS: "its result has no severities of findings"},
    "clean": {OTHERS: "it does not predict the start of a broker"},
    "force": {OTHERS: "it writes no log"},
    "skip_damaged": {"repair": "it always skips them", "adopt": "it copies logs as they are", OTHERS: "it writes no log"},
    "index_interval": {OTHERS: "it writes or predicts no index", "convert": "a broker writes the indexes of new segments"},
    "encoding": {"sql": "keys and values are text, as the statement needs them", OTHERS: _NO_RECORDS},
    **{field: {OTHERS: _NO_CONTENT} for field in ("key_as", "value_as", "schemas", "schema_files", "function", "unwrap")},
    **{field: {OTHERS: _NO_CONTENT} for field in ("registry", "registry_ca")},
    "format": {
        "explain": "its page is text",
        "completion": "it prints a script",
        "demo": "it prints a list of its folders",
    },
    "output": {
        "rules": "its rows are few",
        "convert": "its result is DST, and its summary is on stdout",
        "completion": "--install writes the script",
        "demo": "its files are in FOLDER",
    },
    "verbose": {
        "dump": "all rows are shown",
        "grep": "the letter means --invert-match, and all matches are shown",
        "sql": "the statement chooses the rows",
        OTHERS: "its table is not folded",
    },
    "quiet": {
        "dump": "--format or --template choose what is shown",
        "sql": "the statement chooses the rows",
        OTHERS: "its table is not folded",
    },
    "limit": {"sql": "a limit of the statement", OTHERS: "its table is folded: worst first, -v lists all"},
    "last": {"sql": "order by and limit of the statement", OTHERS: _WHOLE},
    "columns": {
        "sql": "the statement chooses the columns",
        "pipeline": "FILE has the columns of each table",
        "doctor": "its rows are answers and commands",
        **dict.fromkeys(("convert", "repair"), "its report is text or JSON Lines"),
        **dict.fromkeys(("adopt", "carve"), "its rows are of several kinds"),
        "explain": "its page is text",
        "rules": "its table has four columns, and CSV all fields",
        **dict.fromkeys(("tier", OTHERS), "it prints no rows"),
    },
    "template": {"sql": "the statement can write texts", OTHERS: _NO_RECORDS},
    "full": {OTHERS: "its texts are not cut: columns are hidden, and a line names them"},
    "jobs": {
        "explain": "it reads the start of a file",
        "rules": _NO_FILES,
        "repair": "what it keeps of a segment depends on the segments before",
        "adopt": "it reads the ends of logs, and the disks limit the copies",
        "tier": "the store limits the copies",
        "carve": "the disk limits it",
        "transactions": "a transaction can span segments",
        "schemas": "it reads one small topic",
        "sql": "DuckDB pulls the rows of one reader",
        "completion": _NO_FILES,
        "demo": _NO_FILES,
    },
    "max_rate": dict.fromkeys(("rules", "completion", "demo"), _NO_FILES),
    "kek": {
        **dict.fromkeys(("adopt", "recovery", "repair", "lag"), "it reads the log directories of brokers"),
        "carve": "it reads a disk",
        OTHERS: _NO_FILES,
    },
    **{
        field: {OTHERS: "the views of Spark and the functions of the library have the rest"}
        for field in ("spark", "spark_conf", "packages")
    },
}  # fmt: skip


def why_absent(command: str, field: str) -> str:
    """Return why a command lacks an option that several others have, after a colon; "" without a reason."""
    reasons = ABSENT.get(field, {})
    why = reasons.get(command) or reasons.get(OTHERS)
    return f": {why}" if why else ""
