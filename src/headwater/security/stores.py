"""Keys and certificates in the forms that Kafka's settings name: PEM, JKS and PKCS12.

Everything becomes PEM, which is what OpenSSL reads. JKS needs no library; PKCS12 needs
`cryptography`, which the extra `headwater[security]` brings.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

# By its name: an index of packages need not have the release of Headwater that runs here.
NEEDS_EXTRA = "needs the package cryptography: pip install cryptography"

_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----")
_PEM_CHARS_MAX = 1024 * 1024
_LINE = 64
_JKS, _JCEKS, _SEQUENCE = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x30"
_PRIVATE_KEY, _TRUSTED = 1, 2
_SALT_BYTES = _SHA1_BYTES = 20
_WHITENER = b"Mighty Aphrodite"  # part of the format
_U16, _U32 = Struct(">H"), Struct(">I")
_WRONG_PASSWORD = "the password is wrong or the file is damaged"


class Store(NamedTuple):
    """The contents of a store, as PEM."""

    key: str | None
    chain: str | None  # of the key, the own certificate first
    trusted: str | None

    def __repr__(self) -> str:
        """Does not show the key."""
        return f"Store(chain={self.chain!r}, trusted={self.trusted!r})"

    def anchors(self) -> str:
        """Returns the certificates that it trusts as a truststore. As in Java, a key without any
        has its own certificate trusted, but not those that issued it. Raises ValueError if there
        are none: the system's must not take their place."""
        if self.trusted is not None:
            return self.trusted
        own = None if self.chain is None else first_certificate(self.chain)
        if own is None:
            raise ValueError("it holds no certificates")
        return _as_pem("CERTIFICATE", own)


def read_store(data: bytes, kind: str, password: str | None, key_password: str | None) -> Store:
    """Reads a store. Java takes JKS and PKCS12 for each other, so the data decides between them.

    Raises ValueError with a reason that quotes nothing, and ImportError where a library is
    missing.
    """
    if kind.upper() == "PEM":
        return _read_pem(data)
    if data.startswith(_JKS):
        return _read_jks(data, password, key_password)
    if data.startswith(_JCEKS):
        raise ValueError("it is in the format JCEKS; convert it to PKCS12 with keytool")
    if data.startswith(_SEQUENCE):
        return _read_pkcs12(data, password)
    if b"-----BEGIN " in data:
        raise ValueError(f"it is in PEM format, and the type is {kind}; set the type to PEM")
    raise ValueError(f"it is not in the format {kind}")


def normalized_pem(text: str) -> str:
    """Returns PEM with the line breaks that OpenSSL wants: those of a value in a properties file
    may be gone."""
    if len(text) > _PEM_CHARS_MAX:
        raise ValueError(f"it has {len(text)} characters, at most {_PEM_CHARS_MAX} are accepted")
    parts = []
    for label, body in _blocks(text):
        if ":" in body:  # headers of an old encrypted key; they are lines
            parts.append(f"-----BEGIN {label}-----{body}-----END {label}-----\n")
        else:
            parts.append(_as_pem(label, "".join(body.split())))
    if not parts:
        raise ValueError("it is not in PEM format")
    return "".join(parts)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yields the label and the body of each block that ends before the next one begins."""
    begins = list(_BEGIN.finditer(text))
    ends = [*(each.start() for each in begins[1:]), len(text)]
    for begin, limit in zip(begins, ends, strict=False):
        end = text.find(f"-----END {begin[1]}-----", begin.end(), limit)
        if end >= 0:
            yield begin[1], text[begin.end() : end]


def _as_pem(label: str, body: str | bytes) -> str:
    text = b64encode(body).decode() if isinstance(body, bytes) else body
    lines = (text[start : start + _LINE] for start in range(0, len(text), _LINE))
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))


def first_certificate(pem: str) -> bytes | None:
    """Returns the DER form of the first certificate in PEM text."""
    for label, body in _blocks(pem):
        if label == "CERTIFICATE":
            try:
                return b64decode("".join(body.split()), validate=True)
            except (NotBase64, ValueError):
                return None
    return None


def _read_pem(data: bytes) -> Store:
    pem = normalized_pem(data.decode("ascii", "replace"))
    found = [
        (label, f"-----BEGIN {label}-----{body}-----END {label}-----\n")
        for label, body in _blocks(pem)
    ]
    certificates = "".join(text for label, text in found if label == "CERTIFICATE") or None
    key = "".join(text for label, text in found if label.endswith("PRIVATE KEY")) or None
    return Store(key, certificates, certificates)


# JKS


class _Reader:
    """Reads the fields of a JKS in order; raises ValueError where it ends early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = len(_JKS)

    def number(self, form: Struct = _U32) -> int:
        try:
            value: int = form.unpack_from(self._data, self._at)[0]
        except StructError:
            raise ValueError("it ends early") from None
        self._at += form.size
        return value

    def taken(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ValueError("it ends early")
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> bytes:
        return self.taken(self.number(_U16))

    def certificate(self) -> bytes:
        self.text()  # its type
        return self.taken(self.number())


def _read_jks(data: bytes, password: str | None, key_password: str | None) -> Store:
    whole, digest = data[:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    if password is not None:
        computed = hashlib.sha1(_java(password) + _WHITENER + whole).digest()
        if not hmac.compare_digest(computed, digest):
            raise ValueError(_WRONG_PASSWORD)
    reader = _Reader(whole)
    version = reader.number()
    if version != 2:
        raise ValueError(f"it is a JKS of version {version}, expected 2")
    key = chain = None
    trusted = []
    for _ in range(reader.number()):
        tag = reader.number()
        reader.text()  # alias
        reader.taken(8)  # date
        if tag == _PRIVATE_KEY:
            locked = reader.taken(reader.number())
            certificates = [reader.certificate() for _ in range(reader.number())]
            if key is None:
                key = _as_pem("PRIVATE KEY", _unlocked(locked, key_password or password or ""))
                chain = "".join(_as_pem("CERTIFICATE", each) for each in certificates)
        elif tag == _TRUSTED:
            trusted.append(_as_pem("CERTIFICATE", reader.certificate()))
        else:
            raise ValueError(f"it has an entry of type {tag}, which is neither key nor certificate")
    return Store(key, chain, "".join(trusted) or None)


def _java(password: str) -> bytes:
    return password.encode("utf-16-be")


def _unlocked(locked: bytes, password: str) -> bytes:
    """Decrypts a key as Sun's JDK does: a stream of SHA-1 over password and salt."""
    # EncryptedPrivateKeyInfo: its last element is an octet string with the protected key.
    protected = _last_octets(locked)
    salt, check = protected[:_SALT_BYTES], protected[-_SHA1_BYTES:]
    encrypted = protected[_SALT_BYTES:-_SHA1_BYTES]
    secret, block = _java(password), salt
    plain = bytearray()
    for start in range(0, len(encrypted), _SHA1_BYTES):
        block = hashlib.sha1(secret + block).digest()
        piece = encrypted[start : start + _SHA1_BYTES]
        plain += bytes(a ^ b for a, b in zip(piece, block, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):
        raise ValueError("the password of its key is wrong")
    return bytes(plain)


def _last_octets(data: bytes) -> bytes:
    from headwater.security.certificates import elements

    (info,) = elements(memoryview(data))
    parts = elements(info.content)
    if not parts:
        raise ValueError("its key is empty")
    return bytes(parts[-1].content)


# PKCS12


def _read_pkcs12(data: bytes, password: str | None) -> Store:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    secret = None if password is None else password.encode()
    try:
        store = pkcs12.load_pkcs12(data, secret)
    except ValueError:
        raise ValueError(_WRONG_PASSWORD) from None
    others = [each.certificate for each in store.additional_certs]
    if store.key is None or store.cert is None:
        own = [] if store.cert is None else [store.cert.certificate]
        return Store(None, None, _pem_of([*own, *others]))
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = _in_order(store.cert.certificate, others)
    # An authority that is trusted may also have issued the own certificate.
    return Store(key.decode(), _pem_of(chain), _pem_of(others))


def _in_order(own: Certificate, others: list[Certificate]) -> list[Certificate]:
    """Returns the chain of a certificate: each is followed by its issuer."""
    chain, left = [own], list(others)
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in left if each.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        left.remove(issuer)
        chain.append(issuer)
    return chain


def _pem_of(certificates: list[Certificate]) -> str | None:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates) or None
