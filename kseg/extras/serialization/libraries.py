"""The libraries that read Avro, Protobuf, MessagePack and CBOR, imported at their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.engine import lazy

if TYPE_CHECKING:
    import cbor2
    import msgpack
    from fastavro import _read_py as fastavro_python
    from fastavro import read as fastavro_read
    from fastavro import schema as fastavro_schema
    from fastavro.io import binary_decoder as fastavro_decoder
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
else:
    _AVRO = "Avro needs fastavro: pip install 'kseg[avro]', which has fastavro"
    _PROTOBUF = "Protobuf needs protobuf: pip install 'kseg[protobuf]', which has protobuf"
    cbor2 = lazy("cbor2", needed="CBOR needs cbor2: pip install 'kseg[cbor]', which has cbor2")
    msgpack = lazy("msgpack", needed="MessagePack needs msgpack: pip install 'kseg[msgpack]', which has msgpack")
    fastavro_decoder = lazy("fastavro.io.binary_decoder", needed=_AVRO)
    fastavro_python = lazy("fastavro._read_py", needed=_AVRO)
    fastavro_read = lazy("fastavro.read", needed=_AVRO)
    fastavro_schema = lazy("fastavro.schema", needed=_AVRO)
    descriptor_pb2 = lazy("google.protobuf.descriptor_pb2", needed=_PROTOBUF)
    descriptor_pool = lazy("google.protobuf.descriptor_pool", needed=_PROTOBUF)
    json_format = lazy("google.protobuf.json_format", needed=_PROTOBUF)
    message_factory = lazy("google.protobuf.message_factory", needed=_PROTOBUF)

__all__ = [
    "cbor2",
    "descriptor_pb2",
    "descriptor_pool",
    "fastavro_decoder",
    "fastavro_python",
    "fastavro_read",
    "fastavro_schema",
    "json_format",
    "message_factory",
    "msgpack",
]
