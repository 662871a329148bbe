"""`headwater streams serve`: the named tables of an app by HTTP, for any program."""

from __future__ import annotations

import asyncio
import signal
from argparse import Namespace
from contextlib import AsyncExitStack
from typing import Any

from headwater.cli.connection import CLIENT_ID, cluster_of, explained_errors
from headwater.cli.errors import CommandError
from headwater.cli.output import print_json
from headwater.cli.settings import check_http
from headwater.cli.streams import app_status


def serve(options: Namespace) -> int:
    check_http("--listen", options.listen, insecure=options.insecure, what="the app's tables")
    tables = _tables(options)
    with explained_errors():
        asyncio.run(_serve(options, tables))
    return 0


def _tables(options: Namespace) -> dict[str, str]:
    from headwater.streams.serving import table_names

    status = app_status(options)
    known = table_names(status.name, status.topics)
    if not known:
        raise CommandError(
            f"app {status.name} has no table with a name",
            then='give one a name, such as .count(name="counts")',
        )
    for name in options.table:
        if name not in known:
            raise CommandError(f"--table {name}: {status.name} has {', '.join(known)}")
    return {name: known[name] for name in options.table or known}


async def _serve(options: Namespace, tables: dict[str, str]) -> None:
    from headwater.streams.serving import AnyKey, AnyValue, TableServer
    from headwater.streams.view import TableView

    cluster = cluster_of(options)
    async with AsyncExitStack() as stack:
        views: dict[str, TableView[str, Any]] = {}
        for name, topic in tables.items():
            view: TableView[str, Any] = TableView(
                cluster.bootstrap,
                topic,
                key=AnyKey(),
                value=AnyValue(),
                config=cluster.settings,
                client_id=CLIENT_ID,
            )
            views[name] = await stack.enter_async_context(view)
        server = TableServer(views)
        host, _, port = options.listen.rpartition(":")
        try:
            address = server.start(host.strip("[]"), int(port))
        except OSError as error:
            raise CommandError(f"--listen {options.listen}: {error.strerror or error}") from None
        stack.push_async_callback(server.stop)
        # Until here a signal ends the process at once: reading large tables takes a while.
        ends = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ends.set)
        if options.output == "json":
            print_json({"address": str(address), "tables": tables})
        else:
            print(f"ready: http://{address}/tables", flush=True)
        await ends.wait()
