"""The two ways in which a message can be wrong: as bytes, and as an object."""

from __future__ import annotations


class DecodeError(ValueError):
    """The bytes are not such a message: too short, too long, or against the schema."""


class EncodeError(ValueError):
    """The object cannot be written in that version: a field it has no place for, or a bad value."""
