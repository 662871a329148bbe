"""Tables by HTTP: what `TableView`s have, for programs that are not Python.

    GET /tables                              the tables, how many keys they have, how far they read
    GET /tables/totals?from=a&to=f&limit=10  keys in their order; prefix=, reverse=true
    GET /tables/totals/tea                   one key; 404 if the table does not have it

`fresh=true` waits until the view has everything that was committed before the request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote

from headwater.client.errors import ClientError
from headwater.io import Address, Host
from headwater.net.http import HttpAnswer, HttpLimits, HttpRequest, HttpServer
from headwater.streams.serde import SerdeError
from headwater.streams.view import Entry, TableView

_JSON = "application/json"
_ROWS_MAX = 1000  # of an answer without limit=
_ROWS_MOST = 100_000
_ROWS_AT_ONCE = 500
_REFRESH_MS = 10_000
_HEX = "0x"
_LIMITS = HttpLimits(connections_max=1024, long_answers_max=64)
_QUERY = ("from", "to", "prefix", "limit", "reverse", "fresh")


class AnyKey:
    """Keys as text, and in hexadecimal digits if they are none: for whoever does not know the
    type."""

    name = "any key"

    def encode(self, value: str, /) -> bytes:
        if value.startswith(_HEX):
            try:
                return bytes.fromhex(value.removeprefix(_HEX))
            except ValueError:
                pass  # text that begins so
        return value.encode()

    def decode(self, data: bytes, /) -> str:
        text = _text(data)
        return _HEX + data.hex() if text is None else text


class AnyValue:
    """Values as JSON, as text, or as hexadecimal digits, whichever fits first."""

    name = "any value"

    def encode(self, value: Any, /) -> bytes:
        return json.dumps(value).encode()

    def decode(self, data: bytes, /) -> Any:
        text = _text(data)
        if text is None:
            return _HEX + data.hex()
        try:
            return json.loads(text)
        except ValueError:
            return text


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if "\0" not in text else None


class TableServer:
    """Serves views, which have been started, at one address. Keys are text in paths, so views are
    made with `AnyKey()` and `AnyValue()`."""

    def __init__(
        self,
        tables: Mapping[str, TableView[str, Any]],
        *,
        host: Host | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        self._tables = dict(tables)
        self._server = HttpServer(host or Host.system(), self._answer, limits or _LIMITS)

    def start(self, host: str, port: int) -> Address:
        """Listens; returns the address. Raises OSError, with the address, if that cannot be."""
        return self._server.start(host, port)

    async def stop(self) -> None:
        await asyncio.gather(*self._server.stop(), return_exceptions=True)

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        try:
            return await self._found(request)
        except _Refused as refusal:
            return _json({"error": str(refusal)}, refusal.status)
        except (ClientError, SerdeError) as error:
            return _json({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _found(self, request: HttpRequest) -> HttpAnswer:
        parts = [unquote(each) for each in request.path.strip("/").split("/", 2)]
        match parts:
            case [""] | ["tables"]:
                return _json({"tables": [_about(*each) for each in self._tables.items()]})
            case ["healthz"]:
                for view in self._tables.values():
                    view.positions()
                    len(view)  # raises if the view has ended
                return HttpAnswer("ok\n")
            case ["tables", name]:
                view = self._table(name)
                query = await _read(request, view)
                rows = _chosen(view, query)
                body = _rows(name, rows)
                is_short = len(rows) <= _ROWS_AT_ONCE
                return HttpAnswer("".join(body) if is_short else body, content_type=_JSON)
            case ["tables", name, key]:
                view = self._table(name)
                await _read(request, view)
                entry = view.entry(key)
                if entry is None:
                    raise _Refused(HTTPStatus.NOT_FOUND, f"table {name} has no key {key}")
                return _json(_row(key, entry))
        raise _Refused(HTTPStatus.NOT_FOUND, "expected /tables, /tables/NAME or /tables/NAME/KEY")

    def _table(self, name: str) -> TableView[str, Any]:
        if name not in self._tables:
            known = ", ".join(self._tables)
            raise _Refused(HTTPStatus.NOT_FOUND, f"there is no table {name}; there is {known}")
        return self._tables[name]


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


async def _read(request: HttpRequest, view: TableView[str, Any]) -> dict[str, str]:
    """Returns the query of a request, for a view that is as fresh as it asks for."""
    given = parse_qs(request.query, keep_blank_values=True)
    for name in given:
        if name not in _QUERY:
            expected = ", ".join(f"{each}=" for each in _QUERY)
            raise _Refused(HTTPStatus.BAD_REQUEST, f"unknown {name}=; expected {expected}")
    query = {name: values[-1] for name, values in given.items()}
    if _flag(query, "fresh"):
        await view.refresh(timeout_ms=_REFRESH_MS)
    return query


def _chosen(view: TableView[str, Any], query: Mapping[str, str]) -> list[tuple[str, Any]]:
    text = query.get("limit", str(_ROWS_MAX))
    if not text.isdecimal() or int(text) > _ROWS_MOST:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"limit={text}: expected 0 to {_ROWS_MOST}")
    limit, reverse = int(text), _flag(query, "reverse")
    if "prefix" in query:
        if "from" in query or "to" in query:
            raise _Refused(HTTPStatus.BAD_REQUEST, "give prefix=, or from= and to=")
        return view.scan(query["prefix"], limit=limit, reverse=reverse)
    return view.range(query.get("from"), query.get("to"), limit=limit, reverse=reverse)


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false", ""):
        raise _Refused(HTTPStatus.BAD_REQUEST, f"{name}={text}: expected true or false")
    return text != "false"


def _rows(name: str, rows: list[tuple[str, Any]]) -> Iterator[str]:
    """Yields the answer in parts, so that others are served in between."""
    yield f'{{"table": {json.dumps(name)}, "rows": ['
    for at in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[at : at + _ROWS_AT_ONCE]
        yield (", " if at else "") + ", ".join(
            json.dumps({"key": key, "value": value}) for key, value in part
        )
    yield "]}\n"


def _row(key: str, entry: Entry[Any]) -> dict[str, Any]:
    return {
        "key": key,
        "value": entry.value,
        "timestamp": entry.timestamp,
        "partition": entry.partition,
        "offset": entry.offset,
    }


def _about(name: str, view: TableView[str, Any]) -> dict[str, Any]:
    positions = {str(partition): offset for partition, offset in sorted(view.positions().items())}
    return {"table": name, "topic": view.topic, "keys": len(view), "positions": positions}


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> HttpAnswer:
    return HttpAnswer(json.dumps(value) + "\n", status, _JSON)


def table_names(app: str, topics: Iterable[str]) -> dict[str, str]:
    """Returns the tables of an app, by their names, of its internal topics."""
    found = {}
    for topic in topics:
        if topic.startswith(f"{app}-") and topic.endswith(_CHANGELOG):
            found[topic.removeprefix(f"{app}-").removesuffix(_CHANGELOG)] = topic
    return found


_CHANGELOG = "-changelog"
