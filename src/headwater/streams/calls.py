"""Calls Python functions for the rows of a stream, by Arrow batches, in Spark's workers."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.streams.columns import (
    HEADERS,
    KEY,
    LETTER,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TOMBSTONE,
    TOPIC,
)
from headwater.streams.topology import CallKind, OnError

_REASON_CHARACTERS_MAX = 1000
_TRACEBACK_CHARACTERS_MAX = 8000


class OperatorFailed(Exception):
    """A function raised, and its app says that this ends the query: one line."""


def failure(operator: str, error: BaseException, about: Mapping[str, Any]) -> str:
    """Returns one line: operator, topic, partition, offset, and what was raised."""
    places = [
        f"{name} {about[column]}"
        for name, column in (("topic", TOPIC), ("partition", PARTITION), ("offset", OFFSET))
        if about.get(column) is not None
    ]
    where = f" ({', '.join(places)})" if places else ""
    text = " ".join(str(error).split())[:_REASON_CHARACTERS_MAX]
    return f"operator {operator}{where}: {type(error).__name__}: {text}"


def traceback_of(error: BaseException) -> str:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if len(text) > _TRACEBACK_CHARACTERS_MAX:
        half = _TRACEBACK_CHARACTERS_MAX // 2
        text = f"{text[:half]}\n...\n{text[-half:]}"
    return text


def plain_json(value: Any) -> bytes | None:
    """Returns what an operator was given, for a dead letter whose record is not known."""
    if value is None:
        return None
    return json.dumps(value, default=str, ensure_ascii=False).encode()


def letter_of(operator: str, error: BaseException, row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the dead letter of a row; `row` has its columns, and its value under None."""
    key, value = row.get(RAW_KEY), row.get(RAW_VALUE)
    if row.get(OFFSET) is None:  # it does not come straight from a record
        key, value = plain_json(row.get(KEY)), plain_json(row.get("value"))
    return {
        "key": key,
        "value": value,
        "timestamp": row.get(TIMESTAMP),
        "headers": row.get(HEADERS),
        "topic": row.get(TOPIC),
        "partition": row.get(PARTITION),
        "offset": row.get(OFFSET),
        "operator": operator,
        "reason": failure(operator, error, row),
        "traceback": traceback_of(error),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """For mapInArrow: batches in, batches out. `output` is the schema of the result."""

    operator: str
    function: Callable[..., Any]
    kind: CallKind
    names: tuple[str, ...]  # the columns of the value
    load: Callable[[Mapping[str, Any]], Any] | None  # None: a dict of columns, or the only one
    load_key: Callable[[Any], Any] | None
    dump: Callable[[Any], dict[str, Any]] | None
    dump_key: Callable[[Any], Any] | None
    output: pa.Schema
    on_error: OnError
    deletes: bool = False  # a row that a filter leaves out is deleted, as in a table

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield self._batch(batch)

    def _batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        taken: list[int] = []
        letters: list[dict[str, Any] | None] = []
        changes: list[dict[str, Any]] = []
        known = batch.column(LETTER).to_pylist()
        dead = batch.column(TOMBSTONE).to_pylist()
        values = self._values(batch)
        # Without a result there is no new key, and the old one may be of another type.
        lost = {KEY: None} if self.kind in ("key", "records") else {}
        for row in range(batch.num_rows):
            if known[row] is not None:
                taken.append(row)
                letters.append(known[row])
                changes.append(lost)
                continue
            if dead[row] and self.kind not in ("records", "topic"):
                if self.deletes or self.kind in ("map", "peek", "key"):
                    taken.append(row)
                    letters.append(None)
                    changes.append({TOMBSTONE: True, **lost})
                continue
            try:
                results = self._results(batch, row, values[row])
            except Exception as error:
                if self.on_error == "continue":
                    continue
                about = self._about(batch, row, values[row])
                if self.on_error == "fail":
                    raise OperatorFailed(failure(self.operator, error, about)) from error
                taken.append(row)
                letters.append(letter_of(self.operator, error, about))
                changes.append(lost)
                continue
            for each in results:
                taken.append(row)
                letters.append(None)
                changes.append(each)
        return self._made(batch, taken, letters, changes)

    def _values(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        columns = [batch.column(name).to_pylist(maps_as_pydicts="strict") for name in self.names]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _results(
        self, batch: pa.RecordBatch, row: int, columns: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Calls the function; returns for each result the columns that change."""
        if self.kind == "columns":
            return self.function(columns)  # type: ignore[no-any-return]
        if self.kind in ("records", "topic"):
            return self._of_record(batch, row, columns)
        value = self._loaded(columns)
        match self.kind:
            case "filter" | "filter_not":
                if bool(self.function(value)) == (self.kind == "filter"):
                    return [{}]
                deleted = dict.fromkeys(self.names, None)
                return [{TOMBSTONE: True, **deleted}] if self.deletes else []
            case "peek":
                self.function(value)
                return [{}]
            case "foreach":
                self.function(value)
                return []
            case "key":
                key = self.function(value)
                return [{KEY: key if self.dump_key is None else self.dump_key(key)}]
            case "map":
                return [self._dumped(self.function(value))]
            case _:
                found = self.function(value)
                return [] if found is None else [self._dumped(each) for each in found]

    def _loaded(self, columns: dict[str, Any]) -> Any:
        if self.load is not None:
            return self.load(columns)
        return columns["value"] if self.names == ("value",) else columns

    def _dumped(self, value: Any) -> dict[str, Any]:
        if value is None:
            return {TOMBSTONE: True}
        assert self.dump is not None
        return self.dump(value)

    def _of_record(
        self, batch: pa.RecordBatch, row: int, columns: dict[str, Any]
    ) -> list[dict[str, Any]]:
        from headwater.streams.processor import UNSET, Record

        def cell(name: str) -> Any:
            return batch.column(name)[row].as_py()

        key = cell(KEY)
        headers = tuple((each["key"], each["value"]) for each in cell(HEADERS) or ())
        record = Record(
            value=None if cell(TOMBSTONE) else self._loaded(columns),
            key=key if self.load_key is None or key is None else self.load_key(key),
            timestamp=cell(TIMESTAMP),
            headers=headers,
            topic=cell(TOPIC),
            partition=cell(PARTITION),
            offset=cell(OFFSET),
        )
        found = self.function(record)
        if self.kind == "topic":
            if not isinstance(found, str) or not found:
                raise ValueError(f"expected the name of a topic, found {found!r}")
            return [{"_to": found}]
        several = [] if found is None else [found] if isinstance(found, Record) else list(found)
        results = []
        for each in several:
            if not isinstance(each, Record):
                raise TypeError(f"expected a Record, found {each!r}")
            changes = self._dumped(each.value)
            changes.setdefault(TOMBSTONE, False)
            if each.key is not UNSET:
                dump = self.dump_key
                changes[KEY] = each.key if each.key is None or dump is None else dump(each.key)
            if each.timestamp is not None:
                changes[TIMESTAMP] = each.timestamp
            if each.headers is not None:
                changes[HEADERS] = [{"key": name, "value": data} for name, data in each.headers]
            results.append(changes)
        return results

    def _about(self, batch: pa.RecordBatch, row: int, columns: dict[str, Any]) -> dict[str, Any]:
        names = (KEY, TIMESTAMP, HEADERS, TOPIC, PARTITION, OFFSET, RAW_KEY, RAW_VALUE)
        about = {name: batch.column(name)[row].as_py() for name in names}
        return {**about, "value": columns}

    def _made(
        self,
        batch: pa.RecordBatch,
        taken: list[int],
        letters: list[dict[str, Any] | None],
        changes: list[dict[str, Any]],
    ) -> pa.RecordBatch:
        kept = batch.take(pa.array(taken, pa.int32()))
        changed = self._changed()
        arrays = []
        for field in self.output:
            if field.name == LETTER:
                arrays.append(pa.array(letters, field.type))
            elif field.name in changed:
                arrays.append(self._column(field, kept, changes))
            else:
                arrays.append(kept.column(field.name).cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)

    def _column(
        self, field: pa.Field, kept: pa.RecordBatch, changes: list[dict[str, Any]]
    ) -> pa.Array:
        if (
            self.kind in ("map", "flat_map", "records", "columns")
            and field.name not in _ROW_COLUMNS
        ):
            return pa.array([each.get(field.name) for each in changes], field.type)
        if field.name not in kept.schema.names:
            return pa.array([each.get(field.name) for each in changes], field.type)
        before = kept.column(field.name).to_pylist()
        found = [each.get(field.name, old) for each, old in zip(changes, before, strict=True)]
        return pa.array(found, field.type)

    def _changed(self) -> frozenset[str]:
        own = frozenset(self.output.names) - _ROW_COLUMNS
        match self.kind:
            case "map" | "flat_map" | "columns":
                return own | {TOMBSTONE}
            case "records":
                return own | {KEY, TIMESTAMP, HEADERS, TOMBSTONE}
            case "key":
                return frozenset({KEY})
            case "topic":
                return frozenset({"_to"})
            case "filter" | "filter_not" if self.deletes:
                return own | {TOMBSTONE}
            case _:
                return frozenset()


_ROW_COLUMNS = frozenset(
    {KEY, TIMESTAMP, HEADERS, TOPIC, PARTITION, OFFSET, TOMBSTONE, RAW_KEY, RAW_VALUE, LETTER}
)
