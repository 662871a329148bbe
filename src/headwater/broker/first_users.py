"""The users of a new cluster: `--add-scram`, in the syntax of `kafka-storage format` (KIP-900).

A cluster whose listeners all want a login needs one before anybody can add one. The credential is
among the first records of the metadata, so it has to be given on every node with a controller.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable

from headwater.broker.formatting import FormatRefused
from headwater.metadata.features import LEVEL_SCRAM, METADATA_VERSION
from headwater.protocol.records.metadata_security import UserScramCredentialRecord

_SALT_BYTES = 32
_FIELDS = ("name", "password", "salt", "iterations", "saltedpassword")
_FIELD = re.compile(r'\s*(\w+)\s*=\s*(?:"([^"]*)"|([^,"]*?))\s*(?:,|$)')


def scram_records(
    texts: Iterable[str], levels: dict[str, int], random_bytes: Callable[[int], bytes]
) -> list[UserScramCredentialRecord]:
    """Returns the record of each `MECHANISM=[name=...,password=...]`. Raises FormatRefused, which
    does not quote passwords."""
    records = [_record(text, random_bytes) for text in texts]
    if records and levels[METADATA_VERSION] < LEVEL_SCRAM:
        raise FormatRefused("--add-scram: needs --release-version 3.5-IV2 or later")
    keys = [(record.name, record.mechanism) for record in records]
    for name, mechanism in keys:
        if keys.count((name, mechanism)) > 1:
            raise FormatRefused(f"--add-scram: user {name} is given twice for one mechanism")
    return records


def _record(text: str, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    from headwater.controller.users import credential_record
    from headwater.security.sasl import SCRAM_NUMBERS
    from headwater.security.sasl.scram import (
        ITERATIONS_MIN,
        ITERATIONS_STORED_MAX,
        salted_password,
    )

    mechanism, equals, value = text.strip().partition("=")
    if not equals or mechanism not in SCRAM_NUMBERS:
        raise FormatRefused(
            "--add-scram: expected SCRAM-SHA-256=[name=USER,password=PASSWORD], or the same with "
            "SCRAM-SHA-512"
        )
    what = f"--add-scram {mechanism}"
    if not (value.startswith("[") and value.endswith("]")):
        raise FormatRefused(f"{what}: expected the user in brackets, [name=USER,password=PASSWORD]")
    fields = _fields(what, value[1:-1])
    if not fields.get("name"):
        raise FormatRefused(f"{what}: expected name=USER")
    what += f" of {fields['name']}"
    if ("password" in fields) == ("saltedpassword" in fields):
        raise FormatRefused(f"{what}: expected either password or saltedpassword")
    if "saltedpassword" in fields and "salt" not in fields:
        raise FormatRefused(f"{what}: expected salt beside saltedpassword")
    iterations = fields.get("iterations", str(ITERATIONS_MIN))
    if (
        not iterations.isascii()
        or not iterations.isdigit()
        or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_STORED_MAX
    ):
        raise FormatRefused(
            f"{what}: iterations={iterations}, expected {ITERATIONS_MIN} to {ITERATIONS_STORED_MAX}"
        )
    count = int(iterations)
    salt = _decoded(what, fields, "salt") if "salt" in fields else random_bytes(_SALT_BYTES)
    if "saltedpassword" in fields:
        salted = _decoded(what, fields, "saltedpassword")
    else:
        if not fields["password"]:
            raise FormatRefused(f"{what}: the password is empty")
        salted = salted_password(mechanism, fields["password"], salt, count)
    return credential_record(fields["name"], mechanism, salted, salt, count)


def _fields(what: str, text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _FIELD.match(text, position)
        if found is None or found[1] in fields or found[1] not in _FIELDS:
            known = ", ".join(fields) or "["
            raise FormatRefused(
                f"{what}: expected each of {', '.join(_FIELDS)} at most once, as name=value or "
                f'name="value", behind {known}'
            )
        fields[found[1]] = found[3] if found[2] is None else found[2]
        position = found.end()
    return fields


def _decoded(what: str, fields: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(fields[name], validate=True)
    except ValueError:  # also of text that is not ASCII
        raise FormatRefused(f"{what}: {name} is not in base64") from None
