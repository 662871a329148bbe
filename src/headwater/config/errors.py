"""The exception for a setting that cannot be: it names the key, the value and what is allowed."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting has a value that cannot be. `expected` says what would do."""

    def __init__(self, key: str, value: object, expected: str, *, secret: bool = False) -> None:
        shown = "[hidden]" if secret else repr(value) if isinstance(value, str) else str(value)
        super().__init__(f"{key}={shown}: {expected}")
        self.key = key
        self.value = None if secret else value
        self.expected = expected
