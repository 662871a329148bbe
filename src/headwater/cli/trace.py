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
  headwater trace --client-id billing              requests of a client, and their times
  headwater trace --client-id 'billing-*' --api Produce
  headwater trace --principal User:alice --max 100
  headwater trace --topic orders --output json

Each line is a request that a broker has answered: its time and broker, the API and its version, the
client, the bytes of request and response, and how long it was queued, worked on by the broker, and
waiting for others. Requests between nodes are shown as well. Press Ctrl-C to stop. Tracing needs
permission to ALTER the cluster. No node is restarted, and nodes that are not traced are unaffected.
"""


def define(parser: ArgumentParser) -> None:
    parser.description = "Show client requests as brokers answer them."
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--client-id", metavar="ID", help="only requests of this client; ID* matches a prefix"
    )
    parser.add_argument(
        "--api", metavar="NAME", help="only requests of this API, such as Produce or OffsetCommit"
    )
    parser.add_argument(
        "--principal", metavar="PRINCIPAL", help="only requests of this user, such as User:alice"
    )
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        help="only requests that name this topic; later fetches of a session do not",
    )
    parser.add_argument(
        "--node",
        dest="nodes",
        type=from_zero,
        action="append",
        metavar="ID",
        help="only this broker; may be repeated (default: all)",
    )
    parser.add_argument("--max", type=from_one, metavar="N", help="exit after N requests")
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
