"""The configuration of a pipeline: a TOML file, checked completely before any work.

Relative paths are relative to the folder of the file, so that a scheduler can start a run from any folder.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kseg.errors import UnreadableError, UsageError
from kseg.extras.pipeline.table_columns import DEFAULT_COLUMNS, SettingsSection, TablePath, paths_of
from kseg.extras.serialization import schema_sources
from kseg.format.storage import local_files
from kseg.format.storage.naming import is_url, without_file_scheme
from kseg.format.writer import output_rule

#: The formats of tables, with the columns in which readers see the day of a partition.
_DAYS = {"parquet": "date", "iceberg": "timestamp_day", "delta": "timestamp_day"}
ISOLATIONS = ("read_committed", "read_uncommitted")
#: What becomes of records whose key or value cannot be decoded, and of fields that a table lacks.
UNDECODED = ("side_table", "column", "stop")
EVOLUTIONS = ("add", "stop")
FILE_BYTES = 256 * 1024 * 1024
_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_FAIL_IF = re.compile(r"damaged\s*>\s*(\d+(?:\.\d+)?)\s*(%\s*of\s*)?(bytes|segments)")
#: The names of pipelines: they are part of file names and of properties of tables.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True)
class FailIf:
    """The damage from which on a run loads no row: more than ``limit`` bytes or segments, or per cent of them."""

    text: str
    limit: float
    percent: bool
    unit: str

    def is_met(self, damaged: Mapping[str, int], checked: Mapping[str, int]) -> bool:
        """Return whether the damage exceeds the limit. The mappings have bytes and segments."""
        found = float(damaged[self.unit])
        if self.percent:
            found = 100 * found / checked[self.unit] if checked[self.unit] else 0.0
        return found > self.limit


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The table of a topic. ``name`` is that in the catalog of Iceberg, ``path`` a folder or URL of the other formats.

    ``given`` is the path as it is in the file. ``by_day``: the table is partitioned by the day of the timestamp. With
    ``by_schema`` the fields of the value follow ``paths``. ``decoded_as`` is the deserializer, a form of ``struct``.
    """

    topic: str
    format: str
    paths: tuple[TablePath, ...] = tuple(TablePath(name, name) for name in DEFAULT_COLUMNS)
    catalog: str = ""
    name: str = ""
    path: str = ""
    by_day: bool = True
    given: str = ""
    file_bytes: int = FILE_BYTES
    by_schema: bool = False
    decoded_as: str = "struct"
    evolve: str = EVOLUTIONS[0]
    undecoded: str = UNDECODED[0]

    @property
    def day_column(self) -> str:
        """The column in which readers see the day, by which the table is partitioned; "" without one."""
        return _DAYS[self.format] if self.by_day else ""

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that are decoded: of "key" and "value"."""
        contents = {path.column for path in self.paths} | ({"value_decoded"} if self.by_schema else set())
        return tuple(side for side in ("key", "value") if any(name.startswith(f"{side}_") for name in contents))

    @property
    def rejected(self) -> TableSettings:
        """The side table of the records that cannot be decoded."""
        name = f"{self.name}__rejects" if self.name else ""
        place, given = (f"{one}__rejects" if one else "" for one in (self.path, self.given))
        return replace(self, name=name, path=place, given=given, by_day=False, paths=(), by_schema=False)

    @property
    def shown(self) -> str:
        """The table as messages name it."""
        return self.name or self.given


#: The engine that needs no Java, and the masters of Spark.
PROCESSES = "processes"
#: The engine that is Spark above ``spark_above`` bytes, and processes otherwise.
AUTO = "auto"
SPARK_ABOVE = 20 * 10**9
#: How damage is set aside: rows of a list, or also copies of the damaged segments.
QUARANTINES = ("list", "copy")
_MASTERS = ("local", "spark://", "yarn", "k8s://")


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """A checked configuration. ``settle`` is in seconds: segments written within that time wait.

    ``gaps_stop``: offsets that are in no segment stop the load of their partition before them. ``hold_segments``: a
    damaged segment is not loaded at all. ``ended`` are the partitions that the source may lack after a load, such as
    ``orders-0``. ``catalogs`` has the properties of catalogs by name. ``schemas`` are the schema
    files, the paths of the registry's topic, and the URL of a registry, as in DecodeSettings. ``spark`` is the master of
    the Spark that checks and loads; None for processes of this machine. With engine AUTO it is that of runs which read more
    than ``spark_above`` bytes.
    """

    path: str
    digest: str
    name: str
    state: str
    paths: tuple[str, ...]
    tables: Mapping[str, TableSettings]
    isolation: str = "read_committed"
    settle: float = 0.0
    gaps_stop: bool = True
    ended: tuple[str, ...] = ()
    fail_if: FailIf | None = None
    quarantine: str | None = None
    hold_segments: bool = False
    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reports: tuple[tuple[str, str], ...] = ()
    schemas: tuple[tuple[str, ...], tuple[str, ...], str | None] = ((), (), None)
    spark: str | None = None
    engine: str = PROCESSES
    spark_above: int = SPARK_ABOVE
    copies: bool = False


def read_settings(path: str) -> PipelineSettings:
    """Read and check a configuration. Raises UsageError with the file, the key and the expected value."""
    try:
        text = local_files.read_text(path)
        found = tomllib.loads(text)
    except UnreadableError as error:
        raise UsageError(str(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    root = SettingsSection(path, "", found)
    home = os.path.dirname(os.path.abspath(path))
    pipeline, source = root.section("pipeline"), root.section("source")
    validate, quarantine = root.section("validate"), root.section("quarantine")
    report = root.section("report")
    catalogs = {
        name: {key: str(value).replace("{here}", home) for key, value in values.items()}
        for name, values in root.tables("catalog").items()
    }
    schema_files = tuple(_schema_place(one, home) for one in source.texts("schema_files"))
    schemas = tuple(_place(one, home) for one in source.texts("schemas"))
    registry = source.text("registry") or None
    typed = bool(schema_files or schemas) or registry is not None
    engine, master = _engine(pipeline)
    tables = {
        topic: _table(
            SettingsSection(path, f'table."{topic}"' if "." in topic else f"table.{topic}", values), topic, home, typed
        )
        for topic, values in root.tables("table").items()
    }
    if not tables:
        raise UsageError(f"{path}: no table: add [table.TOPIC] for each topic to load")
    name = pipeline.text("name", Path(path).stem)
    if not _NAME.fullmatch(name):
        raise UsageError(f"{path}: pipeline.name: expected letters, digits, '.', '_' and '-', got {name!r}")
    paths = tuple(_place(one, home) for one in source.texts("paths"))
    if not paths:
        raise UsageError(f"{path}: source.paths: expected folders or URLs of log directories")
    settings = PipelineSettings(
        path=path,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        name=name,
        state=_place(pipeline.text("state", required=True), home),
        paths=paths,
        tables=tables,
        isolation=source.choice("isolation", ISOLATIONS),
        settle=source.amount("settle", _SECONDS, "10 min", 0.0),
        gaps_stop=source.choice("gaps", ("stop", "continue")) == "stop",
        ended=tuple(source.texts("ended")),
        fail_if=_fail_if(validate),
        quarantine=_place(to, home) if (to := quarantine.text("to", "")) else None,
        hold_segments=quarantine.choice("unit", ("batch", "segment")) == "segment",
        catalogs=catalogs,
        reports=tuple(_report(path, one, home) for one in report.texts("to")),
        schemas=(schema_files, schemas, registry),
        spark=master,
        engine=engine,
        spark_above=int(pipeline.amount("spark_above", _SIZES, "20 GB", SPARK_ABOVE)),
        copies=quarantine.choice("mode", QUARANTINES) == "copy",
    )
    for section in (pipeline, source, validate, quarantine, report, root):
        section.check_known()
    _check(settings)
    return settings


def _engine(pipeline: SettingsSection) -> tuple[str, str | None]:
    """Return the engine, and the master of Spark. Raises UsageError."""
    engine, master = pipeline.text("engine", PROCESSES), pipeline.text("spark") or None
    if engine not in (PROCESSES, AUTO) and not engine.startswith(_MASTERS):
        raise pipeline.wrong("engine", f"{PROCESSES}, {AUTO}, local[*], spark://…, yarn or k8s://…")
    if master is None and engine == AUTO:
        raise pipeline.wrong("spark", 'a master of Spark for engine = "auto"')
    if master is not None and (engine != AUTO or not master.startswith(_MASTERS)):
        raise pipeline.wrong("spark", 'a master of Spark with engine = "auto", and only there')
    if pipeline.has("spark_above") and engine != AUTO:
        raise pipeline.wrong("spark_above", 'engine = "auto"')
    return engine, master if engine == AUTO else None if engine == PROCESSES else engine


def _place(text: str, home: str) -> str:
    """Return a path, or a URL as it is. A relative path is one in the folder of the configuration."""
    text = without_file_scheme(text)
    return text.rstrip("/") if is_url(text) else os.path.normpath(os.path.join(home, text))


def _schema_place(text: str, home: str) -> str:
    """Return a path, with the id or the subject before ``=`` as it is."""
    file = schema_sources.named_file(text, home)[1]
    return text.removesuffix(file) + _place(file, home)


def _fail_if(section: SettingsSection) -> FailIf | None:
    text = section.text("fail_if")
    if not text:
        return None
    match = _FAIL_IF.fullmatch(text.strip())
    if match is None or (match[2] and float(match[1]) >= 100):
        raise section.wrong("fail_if", "a condition such as 'damaged > 1% of bytes' or 'damaged > 0 segments'")
    return FailIf(text, float(match[1]), bool(match[2]), match[3])


def _report(path: str, text: str, home: str) -> tuple[str, str]:
    """Return kind and place of a report, by its prefix or its suffix."""
    if unknown := [one for one in re.findall(r"\{.*?\}", text) if one != "{run}"]:
        raise UsageError(
            f"{path}: report.to: {unknown[0]} in {text!r} is not known: only {{run}} is, the id of the run"
        )
    kind, colon, place = text.partition(":")
    server = place.startswith(("http://", "https://"))
    if kind == "openlineage" and (not place or server or place.endswith(".jsonl")):
        # Without a place: where its own settings say.
        return kind, _place(place, home) if place and not server else place
    if colon and kind in ("prometheus", "html", "jsonl"):
        return kind, _place(place, home)
    suffix = text.rpartition(".")[2]
    shown = {"html": "html", "prom": "prometheus", "jsonl": "jsonl", "json": "jsonl"}.get(suffix, "")
    if not shown or kind == "openlineage":
        raise UsageError(
            f"{path}: report.to: expected FILE.html, FILE.jsonl, FILE.prom, openlineage:URL or openlineage:FILE.jsonl, "
            f"got {text!r}"
        )
    return shown, _place(text, home)


def _table(section: SettingsSection, topic: str, home: str, typed: bool) -> TableSettings:
    catalog, name = section.text("catalog"), section.text("name")
    path = section.text("path")
    default = "iceberg" if catalog else "parquet"
    kind = section.choice("format", (default, *(one for one in _DAYS if one != default)))
    if kind == "iceberg" and not (catalog and name):
        raise section.wrong("name" if catalog else "catalog", "a catalog and a name such as lake.orders for Iceberg")
    if kind != "iceberg" and not path:
        raise section.wrong("path", f"a folder or URL for format {kind}")
    by_day = section.choice("partition", ("day(timestamp)", "none")) != "none"
    undecoded = section.choice("undecoded", UNDECODED)
    by_schema = typed and not section.has("columns")
    day = _DAYS[kind] if by_day else ""
    paths = paths_of(section, day, typed=typed, with_errors=undecoded == "column")
    if undecoded == "column" and "value_error" not in [one.column for one in paths]:
        raise section.wrong("columns", "value_error among them for undecoded = 'column'")
    size = section.amount("file_size", _SIZES, "256 MB", FILE_BYTES)
    decoded_as, evolve = section.text("value_as", "struct"), section.choice("evolve", EVOLUTIONS)
    if decoded_as.partition(":")[0] != "struct":
        raise section.wrong("value_as", "struct, struct:SUBJECT or struct:MESSAGE")
    section.check_known()
    place = _place(path, home) if path else ""
    found = TableSettings(
        topic, kind, paths, catalog, name, place, by_day, path, max(int(size), 1), by_schema, decoded_as, evolve, undecoded
    )  # fmt: skip
    if found.sides and not typed:
        raise section.wrong("columns", "source.schemas, source.schema_files or source.registry for decoded columns")
    return found


def _check(settings: PipelineSettings) -> None:
    """Raise UsageError for outputs that are inputs, and for two topics with one table."""
    seen: dict[str, str] = {}
    for topic, table in settings.tables.items():
        own = f"{table.catalog}:{table.name}" if table.name else table.path
        if own in seen:
            raise UsageError(f"{settings.path}: table.{topic}: {table.shown} is also the table of {seen[own]}")
        seen[own] = topic
    outputs: list[tuple[str, str | None]] = [("pipeline.state", settings.state), ("quarantine.to", settings.quarantine)]
    outputs += [(f"table.{topic}.path", table.path) for topic, table in settings.tables.items()]
    outputs += [("report.to", place) for _, place in settings.reports]
    for inner, place in outputs:
        for topic, table in settings.tables.items():
            if place and table.path and inner != f"table.{topic}.path" and _is_in(place, table.path):
                raise UsageError(
                    f"{settings.path}: {inner}: {place} is in the table of {topic}: its readers would read it"
                )
    for key, place in outputs:
        if place and not is_url(place):
            output_rule.check_not_of_broker(Path(os.path.realpath(place)), f"{settings.path}: {key}: {place}")
        for source in settings.paths:
            if place and _is_in(place, source):
                raise UsageError(f"{settings.path}: {key}: {place} is in the source {source}: nothing is written there")


def _is_in(place: str, source: str) -> bool:
    """Return whether a path or URL is a source, or is in one. A source can be a pattern."""
    parts = source.split("/")
    return fnmatch.fnmatchcase("/".join(place.split("/")[: len(parts)]), source)
