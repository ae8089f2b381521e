"""The keys of encrypted objects: a data key per segment, wrapped by an RSA key that the user has.

Source: ``RsaEncryptionProvider`` and ``AesEncryptionProvider`` of Aiven's tiered storage plugin.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from kseg.engine import lazy
from kseg.errors import UnreadableError, UsageError
from kseg.format.storage import file_access, local_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.ciphers import aead
else:
    _NEEDED = "encrypted objects need cryptography: pip install 'kseg[tiered]', which has cryptography"
    serialization = lazy("cryptography.hazmat.primitives.serialization", needed=_NEEDED)
    rsa = lazy("cryptography.hazmat.primitives.asymmetric.rsa", needed=_NEEDED)
    aead = lazy("cryptography.hazmat.primitives.ciphers.aead", needed=_NEEDED)

#: The environment variable with the path of a private key, for runs without ``--kek``.
VARIABLE = "KSEG_KEK"
#: The bytes of the initialization vector at the start of each encrypted part, and of the tag at its end.
IV_SIZE, TAG_SIZE = 12, 16
_AES_SIZES = (16, 24, 32)


class Cipher:
    """AES-GCM with the data key and the additional authenticated data of one segment."""

    def __init__(self, data_key: bytes, aad: bytes) -> None:
        self._aead: Any = aead.AESGCM(data_key)
        self._aad = aad

    def decrypt(self, data: bytes) -> bytes | None:
        """Return the plain bytes of ``iv + encrypted bytes + tag``, None if the tag does not match."""
        if len(data) < IV_SIZE + TAG_SIZE:
            return None
        try:
            plain: bytes = self._aead.decrypt(data[:IV_SIZE], data[IV_SIZE:], self._aad)
        except Exception as error:  # InvalidTag: importing its class would import the library
            if type(error).__name__ != "InvalidTag":
                raise
            return None
        return plain


def data_key(wrapped: bytes, key_id: str, where: str) -> bytes:
    """Return the data key that one of the user's keys unwraps.

    ``key_id`` is the plugin's name of the RSA key, and ``where`` the manifest. Raises UnreadableError without such a key.
    """
    paths = file_access.current().keys or tuple(filter(None, [os.environ.get(VARIABLE)]))
    if not paths:
        raise UnreadableError(
            f"{where}: encrypted for the RSA key {key_id!r}: give its private key (PEM) with --kek FILE or {VARIABLE}"
        )
    for path in paths:
        key = _unwrapped(wrapped, _private_key(path))
        if key is not None and len(key) in _AES_SIZES:
            return key
    given = " and ".join(paths)
    raise UnreadableError(f"{where}: encrypted for the RSA key {key_id!r}: {given} cannot decrypt the data key")


@cache
def _private_key(path: str) -> Any:
    """Return the numbers of the RSA key in a PEM file without a password. Raises UsageError and UnreadableError."""
    pem = local_files.read_file(path)
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:  # TypeError: it has a password
        raise UsageError(f"{path}: expected a private key in PEM without a password: {error}") from error
    except Exception as error:
        if type(error).__name__ != "UnsupportedAlgorithm":
            raise
        raise UsageError(f"{path}: {error}") from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise UsageError(f"{path}: expected an RSA key, got {type(key).__name__}")
    return key.private_numbers()


@lru_cache(64)
def _unwrapped(wrapped: bytes, key: Any) -> bytes | None:
    """Decode RSA-OAEP with SHA3-512 for the label's hash and for MGF1 (RFC 8017, 7.1.2); None for a wrong key.

    The library refuses this hash: raw RSA by the numbers of the key.
    """
    modulus = key.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    number = int.from_bytes(wrapped)
    if len(wrapped) != size or number >= modulus:
        return None
    # The Chinese remainder theorem takes a quarter of the time.
    of_p, of_q = pow(number, key.dmp1, key.p), pow(number, key.dmq1, key.q)
    encoded = (of_q + key.q * ((of_p - of_q) * key.iqmp % key.p)).to_bytes(size)
    label = hashlib.sha3_512().digest()
    masked_seed, masked = encoded[1 : 1 + len(label)], encoded[1 + len(label) :]
    seed = _xor(masked_seed, _mask(masked, len(masked_seed)))
    block = _xor(masked, _mask(seed, len(masked)))
    padding, mark, message = block[len(label) :].partition(b"\1")
    if encoded[0] or block[: len(label)] != label or padding.strip(b"\0") or not mark:
        return None
    return message


def _mask(seed: bytes, size: int) -> bytes:
    """MGF1 with SHA3-512."""
    made = b"".join(hashlib.sha3_512(seed + n.to_bytes(4)).digest() for n in range(size // 64 + 1))
    return made[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
