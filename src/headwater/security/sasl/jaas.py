"""`sasl.jaas.config`: where Kafka's Java clients have the user's name and password."""

from __future__ import annotations

import re

_ENTRY = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)(?P<options>.*?);?\s*", re.DOTALL)
_OPTION = re.compile(
    r"""\s*(?P<name>[\w.]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s;"]+))"""
)
_FLAGS = ("required", "requisite", "sufficient", "optional")


def jaas_options(text: str) -> dict[str, str]:
    """The options of the one login module in it. Raises ValueError, which does not quote the text:
    there is a password in it."""
    entry = _ENTRY.fullmatch(text)
    if entry is None or entry["flag"].lower() not in _FLAGS:
        raise ValueError('expected LoginModule required name="value" ... ;')
    options: dict[str, str] = {}
    rest = entry["options"].strip()
    while rest:
        option = _OPTION.match(rest)
        if option is None:
            known = ", ".join(options) or "the module"
            raise ValueError(f'expected name="value" behind {known}')
        quoted = option["quoted"]
        options[option["name"]] = (
            option["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        )
        rest = rest[option.end() :].strip()
    return options
