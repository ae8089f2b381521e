"""The syntax of ``--where``: a condition becomes a query of DuckDB over the fields of records.

DuckDB parses the text, and its tree is changed: paths into JSON become function calls of the type that they are compared
with. Other statements, subqueries, window functions and functions that return another value at each call are rejected.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kseg import schema
from kseg.errors import UsageError
from kseg.extras.sql.statement import RECORDS, Statement, StatementError
from kseg.text import unknown_name

#: The column with the number of the row.
ROW = "_row"
_Node = dict[str, Any]
#: What a condition consists of, in the tree of DuckDB.
_CLASSES = frozenset({"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "FUNCTION", "OPERATOR", "CAST", "BETWEEN",
                      "CASE", "COLLATE", "LAMBDA", "LAMBDA_REF", "TYPE"})  # fmt: skip
_REFUSED = {"SUBQUERY": "a subquery", "WINDOW": "a window function", "STAR": "*", "PARAMETER": "a parameter"}
_STEPS = ("ARRAY_EXTRACT", "STRUCT_EXTRACT")
#: The texts of the current time, and their types: one value for a run, in all its processes.
_NOW = {
    **dict.fromkeys(("now", "current_timestamp", "get_current_timestamp", "transaction_timestamp"), "timestamptz"),
    **dict.fromkeys(("today", "current_date"), "date"),
}
_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
                      "FLOAT", "DOUBLE", "DECIMAL"})  # fmt: skip
#: The type of a path -> its SQL, of the column and the path. A number in JSON is compared with numbers, a text is not; every
#: value has a text. Whole numbers from 2**53 on are not exact as DOUBLE. NaN is not JSON: nullif() would read
#: the JSON twice, and replace() reads it once.
_EXACT = 1 << 53
_AS_TEXT = "json_extract_string({0}, {1})"
_JSON_TEXT = "cast(json_extract({0}, {1}) as varchar)"
_OF_TYPE = {
    "text": _AS_TEXT,
    "number": f"try_cast(replace({_JSON_TEXT}, 'NaN', '') as double)",
    "whole": f"try_cast({_JSON_TEXT} as hugeint)",
    "bool": f"case {_JSON_TEXT} when 'true' then true when 'false' then false end",
}
_HEADER = "list_filter(headers, lambda h: h.key = {0})[-1].value"
_LINE = re.compile(r"^line (\d+)")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
#: A shorter text, in bytes, is in too many records.
_LEAST_TEXT = 3


class Query(NamedTuple):
    """A query for the rows that fulfil a condition, and the columns that it reads.

    With ``texts`` each of these rows contains one of them, in its key, value or headers.
    """

    sql: str
    columns: tuple[str, ...]
    texts: tuple[bytes, ...] | None


def parsed(
    connection: Any, text: str, fields: Mapping[str, schema.Column], sides: Sequence[str]
) -> tuple[Query, Query]:
    """Return the queries of a condition on ``fields``: one for JSON alone, and one for keys and values of any content.

    ``sides`` of "key" and "value" are decoded: paths lead into the decoded ones. Raises UsageError.
    """
    now = datetime.now(UTC).isoformat()
    plain, guarded = (_Condition(connection, text, fields, sides, now, guard) for guard in (False, True))
    return plain.query(), guarded.query()


def _placed(message: str, lines: int) -> str:
    """Return the message of a syntax error with the line of the condition, which is one less than that of the statement."""
    found = _LINE.match(message)
    if found and int(found[1]) - 1 > lines:
        return "the condition is incomplete, or has a ) too many"
    return _LINE.sub(lambda one: f"line {int(one[1]) - 1}", message)


class _Condition:
    """The tree of a condition, changed while it is visited."""

    def __init__(
        self,
        connection: Any,
        text: str,
        fields: Mapping[str, schema.Column],
        sides: Sequence[str],
        now: str,
        guard: bool,
    ) -> None:
        self._connection = connection
        self._fields = fields
        self._sides = sides
        self._now_text = now
        self._guard = guard
        self._bound: list[str] = []  # the parameters of lambdas
        self._columns: set[str] = set()
        self._tree = self._parsed(text)
        self._functions = self._known_functions()

    def query(self) -> Query:
        node = self._tree["statements"][0]["node"]
        texts = self._texts(node["where_clause"])
        node["where_clause"] = self._typed(node["where_clause"], "bool")
        sql = self._value("json_deserialize_sql", json.dumps(self._tree))
        columns = tuple(name for name in self._fields if name in self._columns)
        return Query(sql, columns, tuple(texts) if texts is not None else None)

    def _parsed(self, text: str) -> _Node:
        """Return the tree of a query with the condition. Raises UsageError if the text is more than a condition."""
        if not text.isascii() and text != text.encode(errors="replace").decode():
            raise UsageError("the condition is not UTF-8")
        if not text.strip():
            raise UsageError("the condition is empty: expected SQL such as value.order.total > 100")
        trees = []
        for condition in (text, "true"):
            try:
                sql = Statement(self._connection, f"select {ROW} from {RECORDS} where (\n{condition}\n)").sql
            except StatementError as error:
                raise UsageError(_placed(str(error), lines=condition.count("\n") + 1)) from None
            trees.append(json.loads(self._value("json_serialize_sql", sql)))
        tree, other = trees
        if tree.get("error") or _without_condition(tree) != _without_condition(other):
            raise UsageError("expected one condition, such as value.order.total > 100, got a statement")
        return dict(tree)

    def _known_functions(self) -> dict[str, tuple[bool, bool]]:
        """Return whether each used function returns numbers, and whether it has parameters that are text.

        Raises UsageError for functions that are not functions of one row, or that return another value at each call.
        """
        condition = self._tree["statements"][0]["node"]["where_clause"]
        used = {str(node["function_name"]).lower() for node in _nodes(condition) if node.get("class") == "FUNCTION"}
        rows = self._connection.execute(
            "select function_name, bool_and(coalesce(return_type in ?, false)), bool_or(list_contains(parameter_types, "
            "'VARCHAR')), bool_or(coalesce(stability = 'VOLATILE', false)), bool_or(function_type in ('scalar', 'macro')) "
            "from duckdb_functions() where function_name in ? group by 1", [sorted(_NUMBERS), sorted(used)],
        ).fetchall()  # fmt: skip
        for name, _, _, volatile, of_row in rows:
            if not of_row:
                raise UsageError(f"{name}() is not a function of one record")
            if volatile:
                raise UsageError(f"{name}() can return another value at each call")
        return {name: (number, text) for name, number, text, _, _ in rows}

    def _typed(self, node: _Node, kind: str = "text") -> _Node:
        """Return a node whose paths have become calls; a path that is the node itself has the type ``kind``."""
        if (path := self._path(node)) is not None:
            return self._extracted(*path, kind)
        known = node.get("class")
        if known not in _CLASSES:
            raise UsageError(f"{_REFUSED.get(str(known), str(known).lower())} is not part of a condition")
        if known == "COLUMN_REF":
            return self._column(node)
        if known in ("COMPARISON", "BETWEEN") or node.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN"):
            kind = next(filter(None, (self._kind(child) for child in _children(node))), "text")
        elif known == "CONJUNCTION" or node.get("type") == "OPERATOR_NOT":
            kind = "bool"
        elif known == "FUNCTION":
            if (name := node["function_name"].lower()) in _NOW and not _children(node):
                return self._now(name)
            if name == "->>":
                raise UsageError("->>: write value.name or value['name']")
            kind = "text" if self._functions.get(name, (False, True))[1] else "number"
        elif known not in ("CASE",) and node.get("type") != "OPERATOR_COALESCE":
            kind = "text"
        if known == "LAMBDA":
            return self._lambda(node)
        return self._with_children(node, kind)

    def _with_children(self, node: _Node, kind: str) -> _Node:
        def changed(value: Any, name: str) -> Any:
            if isinstance(value, list):
                return [changed(one, name) for one in value]
            if not isinstance(value, dict):
                return value
            if "class" in value:
                return self._typed(value, "bool" if name == "when_expr" else kind)
            return {inner: changed(one, inner) for inner, one in value.items()}

        return {name: changed(value, name) for name, value in node.items()}

    def _lambda(self, node: _Node) -> _Node:
        names = [str(name) for one in _nodes(node["lhs"]) for name in one.get("column_names", ())[:1]]
        if not self._fields.keys().isdisjoint(names):
            raise UsageError(f"{names[0]}->…: write {names[0]}.name or {names[0]}['name']")
        self._bound += names
        try:
            return {**node, "expr": self._typed(node["expr"])}
        finally:
            del self._bound[len(self._bound) - len(names) :]

    def _column(self, node: _Node) -> _Node:
        first, *others = (str(name) for name in node["column_names"])
        if first in self._bound:
            return node
        if first.lower() in _NOW and not others:
            return self._now(first.lower())
        column = self._field(first)
        if others:
            raise UsageError(
                f"{first}.{others[0]}: {first} has no fields: only {', '.join(self._with_paths())} have them"
            )
        self._columns.add(column.name)
        return node

    def _field(self, name: str) -> schema.Column:
        """Return a field. Raises UsageError with similar names."""
        if name.lower() not in self._fields:
            raise UsageError(unknown_name("field", name, self._fields))
        return self._fields[name.lower()]

    def _with_paths(self) -> list[str]:
        return [
            name
            for name, column in self._fields.items()
            if name in ("key", "value", "headers") or column.type == "object"
        ]

    def _path(self, node: _Node) -> tuple[str, list[str | int]] | None:
        """Return the field and the steps of a path into it, None for another node."""
        if node.get("type") in _STEPS and len(node["children"]) == 2:
            inner, step = node["children"]
            value = _constant(step)
            found = self._path(inner)
            if found is None and inner.get("class") == "COLUMN_REF" and len(inner["column_names"]) == 1:
                name = str(inner["column_names"][0]).lower()
                found = (name, []) if name not in self._bound and name in self._with_paths() else None
            if found is not None and isinstance(value, (str, int)):
                return found[0], [*found[1], value]
        elif node.get("class") == "COLUMN_REF" and len(node["column_names"]) > 1:
            first, *steps = node["column_names"]
            if first not in self._bound and self._field(first).name in self._with_paths():
                return first.lower(), steps
        return None

    def _extracted(self, name: str, steps: Sequence[str | int], kind: str) -> _Node:
        if name == "headers":
            if len(steps) > 1 or not isinstance(steps[0], str):
                raise UsageError("headers: expected one name, such as headers['source']")
            self._columns.add(name)
            return self._expression(_HEADER.format(_quoted(steps[0])))
        name = f"{name}_decoded" if name in self._sides else name
        self._columns.add(name)
        source = f"case when json_valid({name}) then {name} end" if self._guard and name in ("key", "value") else name
        return self._expression(_OF_TYPE[kind].format(source, _quoted(_json_path(steps))))

    def _now(self, name: str) -> _Node:
        return self._expression(f"cast('{self._now_text}' as timestamptz)" + "::date" * (_NOW[name] == "date"))

    def _expression(self, sql: str) -> _Node:
        """Return the tree of an expression."""
        node: _Node = json.loads(self._value("json_serialize_sql", f"select {sql}"))["statements"][0]["node"][
            "select_list"
        ][0]
        return node

    def _value(self, function: str, text: str) -> str:
        """Return what a function of DuckDB returns for a text. All rows are fetched: a connection has one result."""
        return str(self._connection.execute(f"select {function}(?)", [text]).fetchall()[0][0])

    def _kind(self, node: _Node) -> str | None:
        """Return the type with which a path next to this node is compared, None if the node does not say it."""
        known = node.get("class")
        if known == "CONSTANT":
            value = _constant(node)
            if isinstance(value, bool):
                return "bool"
            if isinstance(value, int) and abs(value) >= _EXACT:
                return "whole"
            return "number" if isinstance(value, (int, float)) else "text" if isinstance(value, str) else None
        if known == "COLUMN_REF" and len(node["column_names"]) == 1:
            column = self._fields.get(str(node["column_names"][0]).lower())
            return {"int": "number", "int32": "number", "bool": "bool"}.get(column.type) if column else None
        if known == "FUNCTION":
            return "number" if self._functions.get(node["function_name"].lower(), (False, True))[0] else None
        if known == "CAST":
            name = str(node.get("cast_type", {}).get("id") or node.get("type_expr", {}).get("type_name", ""))
            return "number" if name in _NUMBERS else "bool" if name == "BOOLEAN" else None
        if known == "CASE" or node.get("type") == "OPERATOR_COALESCE":
            return next(filter(None, map(self._kind, _children(node))), None)
        return None

    def _texts(self, node: _Node) -> set[bytes] | None:
        """Return texts of which each record that fulfils the condition contains one; None if they are not known."""
        children = _children(node)
        if node.get("class") == "CONJUNCTION":
            found = [self._texts(child) for child in children]
            if node["type"] == "CONJUNCTION_OR":
                return None if None in found else set().union(*(texts for texts in found if texts))
            known = [texts for texts in found if texts]
            return max(known, key=lambda texts: min(map(len, texts)), default=None)
        values = [_constant(child) for child in children[1:]]
        if not values or not all(isinstance(value, str) and value for value in values):
            return None
        if node.get("type") in ("COMPARE_EQUAL", "COMPARE_IN"):
            return self._equal_texts(children[0], [str(value) for value in values])
        if node.get("class") == "FUNCTION" and len(values) == 1 and _plain_field(children[0]) in ("key", "value"):
            fixed = _FIXED.get(node["function_name"].lower())
            return _in_text_or_base64(fixed(str(values[0]))) if fixed else None
        return None

    def _equal_texts(self, node: _Node, values: Sequence[str]) -> set[bytes] | None:
        path = self._path(node)
        if _plain_field(node) in ("key", "value") or (path and path[0] == "headers"):
            found = [text for value in values for text in (value.encode(), _of_base64(value)) if text]
        elif path and path[0] in ("key", "value") and path[0] not in self._sides:
            # JSON can write these characters, and characters of other texts than strings, in several ways.
            if any(re.search(r'["\\/\x00-\x1f]', value) or _can_be_number(value) for value in values):
                return None
            found = [*(value.encode() for value in values), rb"\u"]
        else:
            return None
        return set(found) if min(map(len, found)) >= _LEAST_TEXT - 1 else None


#: Function -> the text that is in each text for which it is true, by its second argument.
_FIXED: Mapping[str, Callable[[str], str]] = {
    "~~": lambda text: max(re.split("[%_]", text), key=lambda part: len(part)),
    **dict.fromkeys(("contains", "starts_with", "prefix", "^@", "ends_with", "suffix"), lambda text: text),
}


def _can_be_number(text: str) -> bool:
    """Return whether JSON other than a string can have this text: a number, a list or an object."""
    return text[:1] in "[{-0123456789NI"


def _plain_field(node: _Node) -> str | None:
    names: list[Any] = node.get("column_names") or []
    return str(names[0]).lower() if len(names) == 1 else None


def _of_base64(text: str) -> bytes | None:
    """Return the bytes whose base64 is the text: this is the text of bytes that are not UTF-8."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _in_text_or_base64(fixed: str) -> set[bytes] | None:
    """Return needles for a text within a text: the text itself, and its bytes if it is a part of base64."""
    if len(fixed.encode()) < _LEAST_TEXT:
        return None
    if not _BASE64.fullmatch(fixed):
        return {fixed.encode()}
    digits = fixed.rstrip("=")
    found = {fixed.encode()}
    for before in range(4):  # the digits of the group in which the text begins
        data = base64.b64decode("A" * before + digits + "A" * (-(before + len(digits)) % 4))
        first = -(-before * 6 // 8)
        found.add(data[first : (before + len(digits)) * 6 // 8])
    return found if min(map(len, found)) >= 2 else None


def _json_path(steps: Sequence[str | int]) -> str:
    """Return the steps as a pointer (RFC 6901), which any name can be in, or as a path if an index counts from the end."""
    if not any(isinstance(step, int) and step < 0 for step in steps):
        return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    if any(isinstance(step, str) and ('"' in step or "*" in step) for step in steps):
        raise UsageError("an index from the end cannot be combined with a name that has a quote or an asterisk")
    return "$" + "".join(
        f'."{step}"' if isinstance(step, str) else f"[#{step}]" if step < 0 else f"[{step}]" for step in steps
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _constant(node: _Node) -> str | int | float | bool | None:
    """Return the value of a constant: DuckDB 2 has its literal, older versions a typed value."""
    if node.get("class") != "CONSTANT":
        return None
    if (literal := node.get("literal")) is not None:
        kind, text = literal.get("kind"), literal.get("text")
        known: Mapping[str, Callable[[str], str | int | float]] = {"STRING": str, "INTEGER": int, "NUMERIC": float}
        if kind in ("BOOLEAN", "TRUE", "FALSE"):
            return str(text if text is not None else kind).lower() == "true"
        return known[kind](str(text)) if kind in known else None
    value: Any = node["value"]
    if value.get("is_null"):
        return None
    found = value["value"]
    if value["type"]["id"] == "DECIMAL":
        return float(found / 10.0 ** int(value["type"]["type_info"]["scale"]))
    if value["type"]["id"] == "HUGEINT":
        return (int(found["upper"]) << 64) + int(found["lower"])
    return found if isinstance(found, (str, int, float)) else None


def _children(node: _Node) -> list[_Node]:
    """Return the expressions in a node, in their order."""

    def expressions(value: Any) -> Iterator[_Node]:
        if isinstance(value, list):
            for one in value:
                yield from expressions(one)
        elif isinstance(value, dict):
            if "class" in value:
                yield value
            else:
                for one in value.values():
                    yield from expressions(one)

    return [child for value in node.values() for child in expressions(value)]


def _nodes(node: _Node) -> Iterator[_Node]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += _children(node)


def _without_condition(tree: _Node) -> Any:
    return [dict(statement, node=dict(statement["node"], where_clause=None)) for statement in tree["statements"]]
