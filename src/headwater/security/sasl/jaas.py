"""`sasl.jaas.config`: where Kafka's settings have the names and passwords of users.

The module is a class in Java's syntax. It selects what the options mean and is never loaded: a
setting that names code must not run it (CVE-2023-25194).
"""

from __future__ import annotations

import re
from typing import NamedTuple

_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_ENTRY = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)(?P<options>.*?);?\s*", re.DOTALL)
_OPTION = re.compile(
    rf"""\s*(?P<name>{_QUOTED}|[\w.$\-]+)\s*=\s*(?P<value>{_QUOTED}|[^\s;"'][^\s;"]*)""", re.DOTALL
)
# As in Java; a comment begins a word, so that an address without quotes stays whole.
_COMMENT = re.compile(rf"({_QUOTED})|(?<!\S)//[^\r\n]*|(?<!\S)/\*.*?\*/", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_PACKAGE = "org.apache.kafka.common.security"
_USER = "user_"

# The login modules by mechanism.
MODULES = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
}


class JaasEntry(NamedTuple):
    """The one login module of a setting, and its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        """Names the options without their values, which may be passwords."""
        return f"JaasEntry(module={self.module!r}, options={sorted(self.options)})"

    @property
    def users(self) -> dict[str, str]:
        """The passwords of `user_NAME` options, by name: those that PLAIN accepts on a server."""
        return {
            name.removeprefix(_USER): value
            for name, value in self.options.items()
            if name.startswith(_USER)
        }

    @property
    def extensions(self) -> dict[str, str]:
        """The extensions that go with a bearer token (KIP-342)."""
        start = "extension_"
        return {
            name.removeprefix(start): value
            for name, value in self.options.items()
            if name.startswith(start)
        }


def jaas_entry(text: str) -> JaasEntry:
    """Reads the setting. Raises ValueError, which does not quote the text: there is a password in
    it."""
    entry = _ENTRY.fullmatch(_COMMENT.sub(lambda found: found[1] or " ", text))
    if entry is None or entry["flag"].lower() not in _FLAGS:
        raise ValueError('expected LoginModule required name="value" ... ;')
    options: dict[str, str] = {}
    rest = entry["options"].strip()
    while rest:
        option = _OPTION.match(rest)
        if option is None:
            known = ", ".join(options) or "the module"
            raise ValueError(f'expected name="value" after {known}')
        options[_word(option["name"])] = _word(option["value"])
        rest = rest[option.end() :].strip()
    return JaasEntry(entry["module"], options)


def _word(text: str) -> str:
    """Returns a word without its quotes, if it has any."""
    return _ESCAPE.sub(_unescaped, text[1:-1]) if text[0] in "\"'" else text


def _unescaped(found: re.Match[str]) -> str:
    given = found[1]
    return chr(int(given, 8)) if given[0] in "01234567" else _LETTERS.get(given, given)


def jaas_entry_for(mechanism: str, text: str) -> JaasEntry:
    """Reads the setting of one mechanism. Raises ValueError, also for another login module."""
    entry = jaas_entry(text)
    if entry.module != MODULES[mechanism]:
        raise ValueError(f"expected the login module {MODULES[mechanism]}")
    return entry


def jaas_options(text: str) -> dict[str, str]:
    """Returns the options alone; raises ValueError as `jaas_entry`."""
    return jaas_entry(text).options
