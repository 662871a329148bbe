"""The notes about pipelines in the cluster: who runs one writes them, everybody reads them."""

from __future__ import annotations

import time
from argparse import Namespace
from contextlib import suppress

from headwater.cli.cluster_options import CLIENT_ID, Cluster, cluster_of, explained
from headwater.spark.pipeline_status import TOPIC, Status, newest

_PATIENCE_MS = 10_000
_UNKNOWN_MS = 1_000  # a cluster where nobody has run a pipeline yet is asked for so long


def read_notes(options: Namespace) -> list[Status]:
    """The last note about each pipeline, as it looks now."""
    from headwater.blocking import Consumer, TopicPartition
    from headwater.client.errors import ClientError, UnknownTopic

    partition = TopicPartition(TOPIC, 0)
    records: list[tuple[bytes | None, bytes | None]] = []
    try:
        cluster = cluster_of(options)
        with Consumer(
            cluster.bootstrap,
            config=cluster.settings,
            client_id=CLIENT_ID,
            allow_auto_create_topics=False,
        ) as consumer:
            consumer.partitions_for(TOPIC, timeout_ms=_UNKNOWN_MS)  # or there are none
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = consumer.end_offsets(partition)[partition]
            deadline = time.monotonic() + _PATIENCE_MS / 1000
            while consumer.position(partition) < end and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=1000)
                records += [(record.key, record.value) for record in polled]
    except UnknownTopic:
        return []  # nobody has run one yet
    except ClientError as error:
        raise explained(error) from None
    now_ms = int(time.time() * 1000)
    return [each.seen_at(now_ms) for each in newest(records)]


class Notes:
    """Writes notes. They are queued, and what becomes of them is not asked: a pipeline does not
    fail because its figures are old."""

    def __init__(self, cluster: Cluster) -> None:
        from headwater._blocking.loop import LoopThread
        from headwater.client.producer import Producer

        self._thread = LoopThread("headwater-notes")
        self._producer = Producer(cluster.bootstrap, config=cluster.settings, client_id=CLIENT_ID)
        self._thread.call(self._producer.start)

    def write(self, status: Status) -> None:
        self._thread.soon(lambda: self._producer.submit(TOPIC, status.to_json(), key=status.name))

    def close(self) -> None:
        from headwater.client.errors import ClientError

        with suppress(ClientError):
            self._thread.close(lambda: self._producer.close(_PATIENCE_MS))
