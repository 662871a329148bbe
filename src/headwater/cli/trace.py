"""`headwater trace`: the requests of clients, live."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from headwater.cli.arguments import from_one, from_zero
from headwater.cli.connection import add_cluster_options, open_admin
from headwater.cli.output import add_output_option

if TYPE_CHECKING:
    from headwater.client.admin.traces import TracedRequest

_EXAMPLES = """\
examples:
  headwater trace --client-id billing              what this client asks, and what it waits for
  headwater trace --client-id 'billing-*' --api Produce
  headwater trace --principal User:alice --max 100
  headwater trace --topic orders --output json

Each line is a request that a broker has answered: when, at which broker, the API and its version,
who asked, the bytes of request and response, and where the time went: in the queue of the broker,
in its work, waiting for others. Requests that nodes send each other are shown as well. It ends with
Ctrl-C. It needs the right to ALTER the cluster; nothing is restarted, and a node that nobody
traces does not notice.
"""


def define(parser: ArgumentParser) -> None:
    parser.description = "Show requests of clients, as brokers answer them."
    parser.epilog = _EXAMPLES
    parser.add_argument("--client-id", metavar="ID", help="of this client; ID* is a prefix")
    parser.add_argument(
        "--api", metavar="NAME", help="of this API, such as Produce or OffsetCommit"
    )
    parser.add_argument("--principal", metavar="PRINCIPAL", help="of this user, as in User:alice")
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        help="that name this topic; a fetch names it when it is new to it",
    )
    parser.add_argument(
        "--node",
        dest="nodes",
        type=from_zero,
        action="append",
        metavar="ID",
        help="at this broker; may be repeated (default: all)",
    )
    parser.add_argument("--max", type=from_one, metavar="N", help="end after N requests")
    add_cluster_options(parser)
    add_output_option(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    with open_admin(options) as admin:
        from headwater.client.admin.traces import MissedRequests

        follower = admin.trace_requests(
            client_id=options.client_id,
            api=options.api,
            principal=options.principal,
            topic=options.topic,
            nodes=frozenset(options.nodes) if options.nodes else None,
        )
        shown = 0
        with closing(follower):
            for found in follower:
                if isinstance(found, MissedRequests):
                    what = f"{found.count} requests at node {found.node} were left out"
                    print(
                        f"headwater trace: {what}: they came too fast", file=sys.stderr, flush=True
                    )
                    continue
                line = json.dumps(asdict(found)) if options.output == "json" else _line(found)
                print(line, flush=True)
                shown += 1
                if shown == options.max:
                    break
    return 0


def _line(found: TracedRequest) -> str:
    moment = datetime.fromtimestamp(found.time_ms / 1000).isoformat(" ", "milliseconds")
    parts = [
        moment,
        f"node={found.node}",
        f"{found.api} v{found.version}",
        f"client={found.client_id}",
        found.principal,
        f"{found.peer} {found.listener}",
        f"bytes={found.request_bytes}/{found.response_bytes}",
        f"ms={found.queue_ms:g}+{found.local_ms:g}+{found.wait_ms:g}",
    ]
    if found.throttle_ms:
        parts.append(f"throttle_ms={found.throttle_ms}")
    if found.topics:
        more = found.topics_total - len(found.topics)
        parts.append(f"topics={','.join(found.topics)}{f' and {more} more' if more else ''}")
    if found.errors:
        parts.append(f"errors={found.errors}")
    return " ".join(parts)
