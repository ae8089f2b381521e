"""The syntax of ``--where``: a condition becomes a query of DuckDB over the fields of records.

DuckDB parses the text, and its tree is changed: paths into JSON become function calls of the type that they are compared
with. Other statements, subqueries, window functions and functions that return another value at each call are rejected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kseg import schema
from kseg.errors import UsageError
from kseg.extras.sql.condition_texts import Node, children, constant, nodes, texts_of
from kseg.extras.sql.statement import RECORDS, Statement, StatementError
from kseg.text import unknown_name

#: The column with the number of the row.
ROW = "_row"
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
        texts = texts_of(node["where_clause"], self._path, self._sides)
        node["where_clause"] = self._typed(node["where_clause"], "bool")
        sql = self._value("json_deserialize_sql", json.dumps(self._tree))
        columns = tuple(name for name in self._fields if name in self._columns)
        return Query(sql, columns, tuple(texts) if texts is not None else None)

    def _parsed(self, text: str) -> Node:
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
        used = {str(node["function_name"]).lower() for node in nodes(condition) if node.get("class") == "FUNCTION"}
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

    def _typed(self, node: Node, kind: str = "text") -> Node:
        """Return a node whose paths have become calls; a path that is the node itself has the type ``kind``."""
        if (path := self._path(node)) is not None:
            return self._extracted(*path, kind)
        known = node.get("class")
        if known not in _CLASSES:
            raise UsageError(f"{_REFUSED.get(str(known), str(known).lower())} is not part of a condition")
        if known == "COLUMN_REF":
            return self._column(node)
        if known in ("COMPARISON", "BETWEEN") or node.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN"):
            kind = next(filter(None, (self._kind(child) for child in children(node))), "text")
        elif known == "CONJUNCTION" or node.get("type") == "OPERATOR_NOT":
            kind = "bool"
        elif known == "FUNCTION":
            if (name := node["function_name"].lower()) in _NOW and not children(node):
                return self._now(name)
            if name == "->>":
                raise UsageError("->>: write value.name or value['name']")
            kind = "text" if self._functions.get(name, (False, True))[1] else "number"
        elif known not in ("CASE",) and node.get("type") != "OPERATOR_COALESCE":
            kind = "text"
        if known == "LAMBDA":
            return self._lambda(node)
        return self._with_children(node, kind)

    def _with_children(self, node: Node, kind: str) -> Node:
        def changed(value: Any, name: str) -> Any:
            if isinstance(value, list):
                return [changed(one, name) for one in value]
            if not isinstance(value, dict):
                return value
            if "class" in value:
                return self._typed(value, "bool" if name == "when_expr" else kind)
            return {inner: changed(one, inner) for inner, one in value.items()}

        return {name: changed(value, name) for name, value in node.items()}

    def _lambda(self, node: Node) -> Node:
        names = [str(name) for one in nodes(node["lhs"]) for name in one.get("column_names", ())[:1]]
        if not self._fields.keys().isdisjoint(names):
            raise UsageError(f"{names[0]}->…: write {names[0]}.name or {names[0]}['name']")
        self._bound += names
        try:
            return {**node, "expr": self._typed(node["expr"])}
        finally:
            del self._bound[len(self._bound) - len(names) :]

    def _column(self, node: Node) -> Node:
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

    def _path(self, node: Node) -> tuple[str, list[str | int]] | None:
        """Return the field and the steps of a path into it, None for another node."""
        if node.get("type") in _STEPS and len(node["children"]) == 2:
            inner, step = node["children"]
            value = constant(step)
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

    def _extracted(self, name: str, steps: Sequence[str | int], kind: str) -> Node:
        if name == "headers":
            if len(steps) > 1 or not isinstance(steps[0], str):
                raise UsageError("headers: expected one name, such as headers['source']")
            self._columns.add(name)
            return self._expression(_HEADER.format(_quoted(steps[0])))
        name = f"{name}_decoded" if name in self._sides else name
        self._columns.add(name)
        source = f"case when json_valid({name}) then {name} end" if self._guard and name in ("key", "value") else name
        return self._expression(_OF_TYPE[kind].format(source, _quoted(_json_path(steps))))

    def _now(self, name: str) -> Node:
        return self._expression(f"cast('{self._now_text}' as timestamptz)" + "::date" * (_NOW[name] == "date"))

    def _expression(self, sql: str) -> Node:
        node: Node = json.loads(self._value("json_serialize_sql", f"select {sql}"))["statements"][0]["node"][
            "select_list"
        ][0]
        return node

    def _value(self, function: str, text: str) -> str:
        """Return what a function of DuckDB returns for a text. All rows are fetched: a connection has one result."""
        return str(self._connection.execute(f"select {function}(?)", [text]).fetchall()[0][0])

    def _kind(self, node: Node) -> str | None:
        """Return the type with which a path next to this node is compared, None if the node does not say it."""
        known = node.get("class")
        if known == "CONSTANT":
            value = constant(node)
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
            return next(filter(None, map(self._kind, children(node))), None)
        return None


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


def _without_condition(tree: Node) -> Any:
    return [dict(statement, node=dict(statement["node"], where_clause=None)) for statement in tree["statements"]]
