"""Config providers (KIP-297): values that stand elsewhere, such as `${file:/etc/secrets:password}`.

Files of nodes and of clients may name Kafka's three providers, for files, directories and the
environment. A value that was looked up knows its reference and is shown as that. Reading is passed
in: this module knows the rules only. Paths and variables outside of what a provider is allowed are
refused, since settings may come from somebody who must not read everything (CVE-2024-31141).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headwater.config.properties import parse_properties
from headwater.config.values import ConfigError, LookedUp

PROVIDERS = "config.providers"
_PARAMETERS = f"{PROVIDERS}."
_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}:]*)\}")
_PACKAGE = "org.apache.kafka.common.config.provider."
_FILE, _DIRECTORY, _ENVIRONMENT = (
    f"{_PACKAGE}{name}ConfigProvider" for name in ("File", "Directory", "EnvVar")
)
_CLASSES = (_FILE, _DIRECTORY, _ENVIRONMENT)
_BYTES_MAX = 1024 * 1024


class Sources(NamedTuple):
    """The sources of values. `real_path` makes a path absolute and follows links."""

    read: Callable[[str], bytes]
    real_path: Callable[[str], str]
    environment: Mapping[str, str]


def resolve(properties: Mapping[str, Any], sources: Sources) -> dict[str, Any]:
    """Returns the settings with the values that they refer to. Raises ConfigError, which quotes
    references and never values."""
    providers = _providers(properties, sources)
    resolved: dict[str, Any] = {}
    for key, value in properties.items():
        is_own = key == PROVIDERS or key.startswith(_PARAMETERS)
        if providers and isinstance(value, str) and not is_own and "${" in value:
            resolved[key] = _replaced(key, value, providers)
        else:
            resolved[key] = value
    return resolved


_Lookup = Callable[[str, str], str]  # of a path and a name; raises ValueError


def _providers(properties: Mapping[str, Any], sources: Sources) -> dict[str, _Lookup]:
    names = [name.strip() for name in str(properties.get(PROVIDERS) or "").split(",")]
    return {name: _provider(name, properties, sources) for name in names if name}


def _provider(name: str, properties: Mapping[str, Any], sources: Sources) -> _Lookup:
    prefix = f"{_PARAMETERS}{name}."
    key = f"{prefix}class"
    kind = str(properties.get(key) or "").strip()
    allowed = properties.get(f"{prefix}param.allowed.paths")
    roots = None
    if allowed is not None:
        roots = [sources.real_path(path.strip()) for path in str(allowed).split(",")]
    if kind == _FILE:
        return lambda path, item: _in_file(sources, roots, path, item)
    if kind == _DIRECTORY:
        return lambda path, item: _in_directory(sources, roots, path, item)
    if kind == _ENVIRONMENT:
        text = str(properties.get(f"{prefix}param.allowlist.pattern") or ".*")
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise ConfigError(f"{prefix}param.allowlist.pattern", text, str(error)) from None
        return lambda path, item: _in_environment(sources, pattern, path, item)
    # Never any other class: a setting that names code must not run it.
    raise ConfigError(key, kind, f"expected one of {', '.join(_CLASSES)}")


def _replaced(key: str, value: str, providers: Mapping[str, _Lookup]) -> str:
    def look_up(found: re.Match[str]) -> str:
        lookup = providers.get(found[1])
        if lookup is None:
            return found[0]  # not one of ours, and perhaps no reference
        try:
            return lookup(found[2] or "", found[3])
        except ValueError as error:
            raise ConfigError(key, found[0], str(error)) from None

    replaced = _REFERENCE.sub(look_up, value)
    return value if replaced == value else LookedUp.of(replaced, value)


def _read(sources: Sources, roots: list[str] | None, path: str) -> str:
    real = sources.real_path(path)
    if roots is not None and not any(_is_in(real, root) for root in roots):
        raise ValueError("allowed.paths of this provider does not allow that path")
    try:
        data = sources.read(real)
    except OSError as error:
        raise ValueError((error.strerror or str(error)).lower()) from None
    if len(data) > _BYTES_MAX:
        raise ValueError(f"the file has {len(data)} bytes, at most {_BYTES_MAX} are read")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("the file is not text in UTF-8") from None


def _is_in(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _in_file(sources: Sources, roots: list[str] | None, path: str, item: str) -> str:
    if not path:
        raise ValueError("expected a path, as in ${file:/etc/secrets.properties:password}")
    text = _read(sources, roots, path)
    try:
        found = parse_properties(text)
    except ValueError:
        raise ValueError("the file is not a properties file") from None
    if item not in found:
        raise ValueError(f"the file has no key {item}")
    return found[item]


def _in_directory(sources: Sources, roots: list[str] | None, path: str, item: str) -> str:
    if not path or not item or "/" in item or item in (".", ".."):
        raise ValueError(
            "expected a directory and a file in it, as in ${dir:/etc/secrets:password}"
        )
    return _read(sources, roots, f"{path.rstrip('/')}/{item}")


def _in_environment(sources: Sources, pattern: re.Pattern[str], path: str, item: str) -> str:
    if path:
        raise ValueError("expected only the name of a variable, as in ${env:PASSWORD}")
    if pattern.fullmatch(item) is None:
        raise ValueError("allowlist.pattern of this provider does not allow that variable")
    if item not in sources.environment:
        raise ValueError("the variable is not set")
    return sources.environment[item]
