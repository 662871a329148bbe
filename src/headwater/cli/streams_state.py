"""`headwater streams state`: what the operators of an app keep, as of their last micro-batch."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.errors import CommandError
from headwater.cli.output import print_json, print_table
from headwater.cli.spark_start import require_spark, start_spark
from headwater.cli.streams import apps
from headwater.cli.streams_manage import checkpoint_folder, queries_of

if TYPE_CHECKING:
    from headwater.streams.state_reader import StateRow

_WIDTH_MAX = 100


def state(options: Namespace) -> int:
    require_spark()
    folder = checkpoint_folder(options, apps(options).get(options.name))
    query = _query(options, folder)
    with start_spark(options, f"state of {options.name}") as spark:
        from headwater.spark.failures import spark_message
        from headwater.streams.state_reader import read_state

        rows = []
        try:
            for each in read_state(spark, str(folder / query), operator=options.operator):
                if options.key is None or _text(each.key) == options.key:
                    rows.append(each)
                    if len(rows) == options.limit:
                        break
        except Exception as error:
            text, _ = spark_message(error)
            raise CommandError(f"the state of query {query} cannot be read: {text}") from None
    _print(options, query, rows)
    return 0


def _query(options: Namespace, folder: Path) -> str:
    found = [
        each
        for each in queries_of(folder, [options.query] if options.query else [])
        if (folder / each / "state").is_dir()
    ]
    if not found:
        what = f"query {options.query}" if options.query else f"app {options.name}"
        raise CommandError(f"{what} has no state in {folder}")
    if len(found) > 1:
        raise CommandError(
            f"several queries of {options.name} have state: {', '.join(found)}",
            then="choose one with --query",
        )
    return found[0]


def _print(options: Namespace, query: str, rows: list[StateRow]) -> None:
    if options.output == "json":
        print_json({"app": options.name, "query": query, "rows": [_as_dict(each) for each in rows]})
        return
    if not rows:
        print(f"query {query} keeps nothing{' for this key' if options.key else ''}")
        return
    columns = ("operator", "kind", "key", "value", "timers")
    print_table(
        columns,
        [
            (
                each.operator,
                each.kind,
                _short(each.key),
                _short(each.value),
                ", ".join(_timer(timer)["at"] for timer in each.timers) or "-",
            )
            for each in rows
        ],
        output=options.output,
    )
    if len(rows) == options.limit:
        print(f"\nthe first {options.limit:,} rows; --limit shows more, --key those of a key")


def _as_dict(row: StateRow) -> dict[str, Any]:
    return {
        "operator": row.operator,
        "kind": row.kind,
        "key": json.loads(_json(row.key)),
        "value": json.loads(_json(row.value)),
        "timers": [_timer(each) for each in row.timers],
    }


def _timer(timer: Any) -> dict[str, str]:
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(timer.at / 1000, UTC).isoformat(timespec="milliseconds")
    return {"at": at, "name": timer.name, "clock": timer.clock}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= _WIDTH_MAX else f"{text[: _WIDTH_MAX - 3]}..."


def _json(value: Any) -> str:
    def plain(each: Any) -> Any:
        if isinstance(each, (bytes, bytearray)):
            return f"0x{bytes(each).hex()}"
        if isinstance(each, (set, frozenset)):
            return sorted(each, key=repr)
        return each.isoformat() if hasattr(each, "isoformat") else str(each)

    return json.dumps(_with_text_keys(value), default=plain)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else _json(key): _with_text_keys(each)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_with_text_keys(each) for each in value]
    return value
