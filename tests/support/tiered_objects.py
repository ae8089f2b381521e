"""Objects of remote storage: a real partition of Aiven's plugin, and segments packed as the plugin packs them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
from functools import cache
from pathlib import Path
from typing import Any

import zstandard
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kseg.extras import tiered_manifest
from kseg.extras.tiered_manifest import parse_manifest
from tests.support.cli import ROOT

AIVEN = ROOT / "fixtures" / "tiered" / "aiven"
#: A bucket of Kafka's own LocalTieredStorage, the log directory, and the partition before it was tiered.
REFERENCE = ROOT / "fixtures" / "tiered" / "reference"
TOPIC_ID = "l6cG1cnBRMy_CcKy1f-_rA"
OBJECTS = AIVEN / f"tiered-{TOPIC_ID}" / "0"
VIEW = OBJECTS / f"tiered-0-{TOPIC_ID}"
EXPECT: dict[str, Any] = json.loads((AIVEN / "expect.json").read_text())
STEMS = sorted(path.stem for path in OBJECTS.glob("*.log"))


def flip(path: Path, position: int) -> None:
    """Change a bit of a byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@cache
def _numbers() -> rsa.RSAPrivateNumbers:
    n, e, d = int(EXPECT["key"]["n"], 16), EXPECT["key"]["e"], int(EXPECT["key"]["d"], 16)
    p, q = rsa.rsa_recover_prime_factors(n, e, d)
    public = rsa.RSAPublicNumbers(e, n)
    return rsa.RSAPrivateNumbers(
        p, q, d, rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q), public
    )


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def key_file(folder: Path) -> Path:
    """Write the private key of the real objects."""
    path = folder / "kek.pem"
    path.write_bytes(_pem(_numbers().private_key()))
    return path


def other_key_file(folder: Path) -> Path:
    """Write a key that does not fit."""
    path = folder / "other.pem"
    path.write_bytes(_pem(rsa.generate_private_key(65537, 2048)))
    return path


def copied(folder: Path) -> Path:
    """Copy the real objects, to change them; return the folder of the partition."""
    target = folder / OBJECTS.parent.name / "0"
    shutil.copytree(OBJECTS, target)
    return target


def pack(
    local: Path, folder: Path, *, zstd: bool, encrypted: bool, chunk_size: int = 1000, topic: str = "packed"
) -> Path:
    """Pack the segments of a local partition as the plugin does; return the folder with the objects."""
    target = folder / f"{topic}-{TOPIC_ID}" / "0"
    target.mkdir(parents=True)
    real = json.loads((OBJECTS / f"{STEMS[0]}.rsm-manifest").read_text())
    parsed = parse_manifest(json.dumps(real).encode(), "")
    assert parsed.data_key
    key = AESGCM(tiered_manifest._unwrapped(parsed.data_key[1], _numbers()) or b"")
    logs = sorted(local.glob("*.log"))
    ends = [int(path.stem) for path in logs[1:]] + [max(int(path.stem) for path in local.glob("*.snapshot"))]
    for n, (log, end) in enumerate(zip(logs, ends, strict=True)):
        data = log.read_bytes()
        pieces = [data[at : at + chunk_size] for at in range(0, len(data), chunk_size)]
        stored = [zstandard.compress(piece) if zstd else piece for piece in pieces]
        stored = [_sealed(key, piece, parsed.aad) if encrypted else piece for piece in stored]
        files = {
            "offset": log.with_suffix(".index"),
            "timestamp": log.with_suffix(".timeindex"),
            "producerSnapshot": local / f"{end:020}.snapshot",
            "transaction": log.with_suffix(".txnindex"),
        }
        contents = {name: path.read_bytes() for name, path in files.items() if path.exists()}
        packed = b""
        places: dict[str, Any] = {"transaction": None}
        for name, content in (contents | {"leaderEpoch": b"0\n1\n0 0\n"}).items():
            part = _sealed(key, content, parsed.aad) if encrypted and content else content
            places[name] = {"position": len(packed), "size": len(part)}
            packed += part
        index: dict[str, Any] = {"originalChunkSize": chunk_size, "originalFileSize": len(data)}
        if zstd:
            index |= {"type": "variable", "transformedChunks": _sizes([len(piece) for piece in stored])}
        else:
            index |= {
                "type": "fixed",
                "transformedChunkSize": len(stored[0]),
                "finalTransformedChunkSize": len(stored[-1]),
            }
        made = {"version": "1", "chunkIndex": index, "segmentIndexes": places, "compression": zstd}
        if encrypted:
            made["encryption"] = real["encryption"]
        stem = f"{log.stem}-{'AAAAAAAAAAAAAAAAAAAAA' + 'AQgw'[n % 4]}"
        (target / f"{stem}.log").write_bytes(b"".join(stored))
        (target / f"{stem}.indexes").write_bytes(packed)
        (target / f"{stem}.rsm-manifest").write_text(json.dumps(made))
    return target


def _sealed(key: AESGCM, data: bytes, aad: bytes) -> bytes:
    iv = os.urandom(12)
    return iv + key.encrypt(iv, data, aad)


def _sizes(sizes: list[int]) -> str:
    """Encode the sizes of chunks as ``ChunkSizesBinaryCodec`` does."""
    if len(sizes) == 1:
        plain = struct.pack(">ii", 1, sizes[0])
    else:
        base = min(sizes[:-1])
        width = max(1, ((max(sizes[:-1]) - base).bit_length() + 7) // 8)
        values = b"".join((size - base).to_bytes(width) for size in sizes[:-1])
        plain = struct.pack(">iib", len(sizes), base, width) + values + struct.pack(">i", sizes[-1])
    return base64.b64encode(zstandard.compress(plain)).decode()
