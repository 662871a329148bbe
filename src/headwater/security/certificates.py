"""The names in an X.509 certificate, read from its DER form.

Python's `ssl` shows subjects as decoded text, which is not enough for Kafka's names of users: Java
writes attributes that it has no keyword for as hexadecimal DER.
"""

from __future__ import annotations

from typing import NamedTuple

_SEQUENCE, _SET, _OID, _EXTENSIONS, _VERSION = 0x30, 0x31, 0x06, 0xA3, 0xA0
_TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}
_OCTETS = 0x04
_ALTERNATIVE_NAMES = "2.5.29.17"
# The keywords of RFC 2253, which are all that Java uses here.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED = frozenset(',=+<>#;"\\')


class CertificateNames(NamedTuple):
    subject: str  # as Java's X500Principal.getName() writes it
    alternatives: frozenset[bytes]  # subject alternative names, each in its DER form


class _Element(NamedTuple):
    tag: int
    content: memoryview
    whole: memoryview


def names_of(der: bytes) -> CertificateNames:
    """Reads a certificate. Raises ValueError if it is malformed."""
    (certificate,) = elements(memoryview(der))
    parts = elements(certificate.content)
    if not parts:
        raise ValueError("the certificate is empty")
    body = elements(parts[0].content)
    if body and body[0].tag == _VERSION:
        del body[0]
    if len(body) < 5:
        raise ValueError("the certificate is incomplete")
    # Serial number, signature algorithm, issuer, validity, subject, key, and then optional parts.
    subject = _distinguished_name(body[4].content)
    alternatives: frozenset[bytes] = frozenset()
    for element in body[5:]:
        if element.tag == _EXTENSIONS:
            alternatives = _alternative_names(element.content)
    return CertificateNames(subject, alternatives)


def elements(data: memoryview) -> list[_Element]:
    """Splits DER into its elements. Raises ValueError if it is malformed."""
    found = []
    while data:
        if len(data) < 2:
            raise ValueError("DER ends within an element")
        size, start = data[1], 2
        if size & 0x80:
            count = size & 0x7F
            start += count
            if not 1 <= count <= 4 or len(data) < start:
                raise ValueError("DER with an invalid length")
            size = int.from_bytes(data[2:start])
        if len(data) < start + size:
            raise ValueError("DER ends within an element")
        found.append(_Element(data[0], data[start : start + size], data[: start + size]))
        data = data[start + size :]
    return found


def _alternative_names(data: memoryview) -> frozenset[bytes]:
    (extensions,) = elements(data)
    for extension in elements(extensions.content):
        parts = elements(extension.content)
        if parts and _oid(parts[0].content) == _ALTERNATIVE_NAMES and parts[-1].tag == _OCTETS:
            (names,) = elements(parts[-1].content)
            return frozenset(bytes(name.whole) for name in elements(names.content))
    return frozenset()


def _oid(data: memoryview) -> str:
    values: list[int] = []
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            values.append(value)
            value = 0
    if not values:
        raise ValueError("an empty object identifier")
    first = min(values[0] // 40, 2)
    return ".".join(map(str, (first, values[0] - 40 * first, *values[1:])))


def _distinguished_name(data: memoryview) -> str:
    """Returns a name in the form of RFC 2253, the most specific part first."""
    parts = []
    for relative in elements(data):
        if relative.tag != _SET:
            raise ValueError("a name that is not a list of sets")
        parts.append("+".join(_attribute(each.content) for each in elements(relative.content)))
    return ",".join(reversed(parts))


def _attribute(data: memoryview) -> str:
    kind, value = elements(data)
    oid = _oid(kind.content)
    keyword, encoding = _KEYWORDS.get(oid), _TEXTS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or oid}=#{bytes(value.whole).hex()}"
    return f"{keyword}={_escaped(bytes(value.content).decode(encoding))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{c}" if c in _ESCAPED else c for c in text)
    stripped = escaped.strip(" ")
    before = len(escaped) - len(escaped.lstrip(" "))
    after = len(escaped) - before - len(stripped)
    return "\\ " * before + stripped + "\\ " * after
