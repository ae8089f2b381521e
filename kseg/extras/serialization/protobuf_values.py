"""The values of Protobuf messages as JSON, in Protobuf's own mapping, with a limit of items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kseg.extras.serialization.json_values import MOST_ITEMS, TooManyItemsError, json_value
from kseg.extras.serialization.libraries import json_format
from kseg.extras.serialization.schema_set import one_line

#: The start of the names of Protobuf's own types, whose JSON is not that of their fields.
_OWN_TYPES = "google.protobuf."
#: The types of keys of maps that are not numbers, of ``FieldDescriptor.CppType``: texts and booleans.
_TEXT_KEYS = (9, 7)
#: Decode the bytes of a message whose name or indexes are known.
Decode = Callable[[bytes], Any]


def is_repeated(field: Any) -> bool:
    """Return whether a field of a descriptor has several values. protobuf 6 has renamed the attribute."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def decoder_of(message_class: Any, pool: Any) -> Decode:
    """Return the function that decodes the bytes of a message. It raises ValueError for bytes that are not one."""
    messages = _messages_in(message_class.DESCRIPTOR)
    most = MOST_ITEMS // max(1, *(len(one.fields) for one in messages))
    has_maps = any(one.full_name == _ANY or one.is_extendable or one.GetOptions().map_entry for one in messages)

    def mapped(message: Any) -> Any:
        return json_format.MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=pool,
        )

    def decode(data: bytes) -> Any:
        if len(data) > most:
            _check_items(data, message_class.DESCRIPTOR)
        try:
            message = message_class.FromString(data)
        except Exception as error:  # DecodeError, whose class differs between the implementations of protobuf
            raise ValueError(f"not a message {message_class.DESCRIPTOR.full_name}: {one_line(error)}") from None
        try:
            try:
                found = mapped(message)
            except RecursionError:
                raise
            except Exception:  # several errors: JSON cannot have such a time or number, or a message of unknown type
                found = _by_field(message, mapped)
            return _with_sorted_maps(found, message_class.DESCRIPTOR) if has_maps else found
        except RecursionError:
            raise ValueError("the message is nested too deeply") from None

    return decode


def _by_field(message: Any, mapped: Decode) -> Any:
    """Return a message as JSON, field by field: a field without a mapping to JSON does not hide the others.

    Such a field, for example a time after the year 9999, has its fields as they are stored.
    """
    if message.DESCRIPTOR.full_name.startswith(_OWN_TYPES):
        try:
            return mapped(message)
        except RecursionError:
            raise
        except Exception:
            return _stored(message)
    own, found = type(message)(), dict[str, Any]()
    for field, value in message.ListFields():
        name, inner = (f"[{field.full_name}]" if field.is_extension else field.name), field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            if inner.fields_by_name["value"].message_type is None:
                getattr(own, name).update(value)
            else:
                found[name] = {_json_key(key): _by_field(one, mapped) for key, one in value.items()}
        elif inner is not None:
            found[name] = [_by_field(one, mapped) for one in value] if is_repeated(field) else _by_field(value, mapped)
        elif field.is_extension:
            found[name] = _stored(value)
        elif is_repeated(field):
            getattr(own, name).extend(value)
        else:
            setattr(own, name, value)
    return {**mapped(own), **found}


def _json_key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _stored(value: Any) -> Any:
    """Return a value, or the fields of a message with their values, without Protobuf's mapping to JSON."""
    if hasattr(value, "ListFields"):
        return {field.name: _stored(one) for field, one in value.ListFields()}
    if isinstance(value, Mapping):
        return {_json_key(key): _stored(one) for key, one in value.items()}
    return json_value(value) if isinstance(value, (str, bytes, int, float)) else [_stored(one) for one in value]


def _messages_in(descriptor: Any) -> list[Any]:
    """Return the descriptors of a message and of those in it: each message has a value for each field of its own."""
    found = {descriptor.full_name: descriptor}
    waiting = [descriptor]
    while waiting:
        for field in waiting.pop().fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in found:
                found[inner.full_name] = inner
                waiting.append(inner)
    return list(found.values())


def _with_sorted_maps(found: Any, descriptor: Any) -> Any:
    """Sort the entries of the maps in a message that is JSON: in protobuf they have the random order of a hash table.

    In types of Protobuf itself, such as Struct and Any, and in extensions all names are sorted.
    """
    if descriptor.full_name.startswith(_OWN_TYPES):
        return _sorted(found)
    for name, value in found.items():
        field = descriptor.fields_by_name.get(name)
        inner = field and field.message_type
        if field is None:
            found[name] = _sorted(value)
        elif inner is None:
            continue
        elif inner.GetOptions().map_entry:
            of_value = inner.fields_by_name["value"].message_type
            names = sorted(value, key=None if inner.fields_by_name["key"].cpp_type in _TEXT_KEYS else int)
            found[name] = {key: _with_sorted_maps(value[key], of_value) if of_value else value[key] for key in names}
        elif is_repeated(field):
            found[name] = [_with_sorted_maps(one, inner) for one in value]
        else:
            found[name] = _with_sorted_maps(value, inner)
    return found


def _sorted(value: Any) -> Any:
    """Return a value with the names of all its objects sorted."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


#: The wire types, and the bytes of those with a fixed size.
_VARINT, _BYTES = 0, 2
_WIDTHS = {1: 8, 5: 4}
#: The bytes of an item in a packed field by ``FieldDescriptorProto.Type``, 0 for varints.
_PACKED = {1: 8, 2: 4, 6: 8, 7: 4, 15: 4, 16: 8, **dict.fromkeys((3, 4, 5, 8, 13, 14, 17, 18), 0)}
#: The bytes of a varint but its last.
_CONTINUED = bytes(range(128, 256))
_ANY = "google.protobuf.Any"


def _check_items(data: bytes, descriptor: Any) -> None:
    """Raise TooManyItemsError before the items of a message become objects. Malformed bytes are left to protobuf."""
    left = MOST_ITEMS
    waiting = [(0, len(data), descriptor)]
    while waiting:
        at, end, descriptor = waiting.pop()
        left -= len(descriptor.fields)
        while at < end and left >= 0:
            tag, at = _varint(data, at)
            field, wire = descriptor.fields_by_number.get(tag >> 3), tag & 7
            left -= 1
            if wire == _VARINT:
                _, at = _varint(data, at)
            elif wire != _BYTES:
                at += _WIDTHS.get(wire, 0)
            else:
                size, at = _varint(data, at)
                if field is not None and field.message_type is not None:
                    waiting.append((at, min(end, at + size), field.message_type))
                else:
                    left -= _items_in(data[at : at + size], field)
                at += size
        if left < 0:
            raise TooManyItemsError


def _items_in(content: bytes, field: Any) -> int:
    """Return the number of items in the content of a field, at most; messages are counted apart."""
    if field is None:
        return 0
    if field.containing_type.full_name == _ANY:
        return len(content) // 2  # a message of any type
    width = _PACKED.get(field.type)
    if width is None:
        return 0
    return len(content) // width if width else len(content.translate(None, _CONTINUED))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position after it; at the end of the data the bits before it."""
    value = shift = 0
    for byte in data[at : at + 10]:
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return value, at + 1
