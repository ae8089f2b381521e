"""The ``.proto`` files that Confluent's registry knows besides Protobuf's own: schemas import them without a reference.

Sources: ``ProtobufSchema`` of Confluent's registry, and ``google/type`` of googleapis, whose names and numbers these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def _numbered(names: str, first: int) -> str:
    """Return fields or symbols with numbers from ``first``."""
    return " ".join(f"{name.strip()} = {number};" for number, name in enumerate(names.split(","), first))


def _message(name: str, fields: str, more: str = "") -> str:
    return f"message {name} {{ {_numbered(fields, 1)} {more} }}"


def _enum(name: str, symbols: str) -> str:
    return f"enum {name} {{ {_numbered(symbols, 0)} }}"


#: The content of the files in ``google/type``, by name.
_GOOGLE_TYPES = {
    "calendar_period": _enum(
        "CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED, DAY, WEEK, FORTNIGHT, MONTH, QUARTER, HALF, YEAR"
    ),
    "color": _message("Color", "float red, float green, float blue, google.protobuf.FloatValue alpha"),
    "date": _message("Date", "int32 year, int32 month, int32 day"),
    "datetime": _message(
        "DateTime", "int32 year, int32 month, int32 day, int32 hours, int32 minutes, int32 seconds, int32 nanos",
        "oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; }",
    ) + _message("TimeZone", "string id, string version"),
    "dayofweek": _enum(
        "DayOfWeek",
        "DAY_OF_WEEK_UNSPECIFIED, MONDAY, TUESDAY, WEDNESDAY, THURSDAY, FRIDAY, SATURDAY, SUNDAY",
    ),
    "decimal": _message("Decimal", "string value"),
    "expr": _message("Expr", "string expression, string title, string description, string location"),
    "fraction": _message("Fraction", "int64 numerator, int64 denominator"),
    "interval": _message("Interval", "google.protobuf.Timestamp start_time, google.protobuf.Timestamp end_time"),
    "latlng": _message("LatLng", "double latitude, double longitude"),
    "localized_text": _message("LocalizedText", "string text, string language_code"),
    "money": _message("Money", "string currency_code, int64 units, int32 nanos"),
    "month": _enum(
        "Month",
        "MONTH_UNSPECIFIED, JANUARY, FEBRUARY, MARCH, APRIL, MAY, JUNE, JULY, AUGUST, SEPTEMBER, OCTOBER, NOVEMBER,"
        " DECEMBER",
    ),
    "phone_number": "message PhoneNumber { oneof kind { string e164_number = 1; ShortCode short_code = 2; }"
    f" string extension = 3; {_message('ShortCode', 'string region_code, string number')} }}",
    "postal_address": _message(
        "PostalAddress",
        "int32 revision, string region_code, string language_code, string postal_code, string sorting_code,"
        " string administrative_area, string locality, string sublocality, repeated string address_lines,"
        " repeated string recipients, string organization",
    ),
    "quaternion": _message("Quaternion", "double x, double y, double z, double w"),
    "timeofday": _message("TimeOfDay", "int32 hours, int32 minutes, int32 seconds, int32 nanos"),
}  # fmt: skip
#: The files of Protobuf that they import.
_IMPORTS = {"color": "wrappers", "datetime": "duration", "interval": "timestamp"}
_META = """
message Meta {
  string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
}
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
"""


def _file(package: str, content: str, imported: str = "") -> str:
    own = f'import "google/protobuf/{imported}.proto"; ' if imported else ""
    return f'syntax = "proto3"; package {package}; {own}{content}'


def _extensions(options: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, snake in options:
        yield f"extend google.protobuf.{name}Options {{ Meta {snake}_meta = 1088; }}"


#: The texts of the files by the names that schemas import.
KNOWN_IMPORTS = {
    "confluent/meta.proto": _file(
        "confluent",
        _META + "\n".join(_extensions((
            ("File", "file"), ("Message", "message"), ("Field", "field"), ("Enum", "enum"), ("EnumValue", "enum_value"),
        ))),
        "descriptor",
    ),
    "confluent/type/decimal.proto": _file(
        "confluent.type", _message("Decimal", "bytes value, uint32 precision, int32 scale")
    ),
    **{
        f"google/type/{name}.proto": _file("google.type", content, _IMPORTS.get(name, ""))
        for name, content in _GOOGLE_TYPES.items()
    },
}  # fmt: skip
