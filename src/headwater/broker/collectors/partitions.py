"""Topics and partitions of this broker: traffic, logs, replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.partition import Partition, Watcher
from headwater.broker.partitions import Partitions
from headwater.metadata import Image
from headwater.observability.registry import NO_LABELS, Family, Item, Labels, Sample, one, release
from headwater.observability.traffic import Traffic
from headwater.storage import LogDirs

_TOPICS = "kafka_server_brokertopicmetrics"
_REPLICAS = "kafka_server_replicamanager"
_AT_ONCE = 10  # fetch sessions that are looked at in one step
_KAFKA_EXPORTER = "kafka_topic_partition"

# By the name of a count in `Traffic`: Kafka's name, and what it is.
_PER_TOPIC = {
    "messages_in": ("messagesin", "Records appended"),
    "bytes_in": ("bytesin", "Bytes appended, as stored"),
    "bytes_out": ("bytesout", "Bytes of records sent to clients"),
    "bytes_rejected": ("bytesrejected", "Bytes of batches that were too large"),
    "produces": ("totalproducerequests", "Appends, one for each partition of a request"),
    "fetches": ("totalfetchrequests", "Reads, one for each partition of a request"),
    "failed_produces": (
        "failedproducerequests",
        "Appends that failed for reasons other than the client",
    ),
    "failed_fetches": (
        "failedfetchrequests",
        "Reads that failed for reasons other than the client",
    ),
}
_IN_ALL = {
    "replication_bytes_in": (f"{_TOPICS}_replicationbytesin", "Bytes copied from leaders"),
    "replication_bytes_out": (f"{_TOPICS}_replicationbytesout", "Bytes sent to followers"),
    "isr_shrinks": (f"{_REPLICAS}_isrshrinks", "Replicas that left in-sync sets"),
    "isr_expands": (f"{_REPLICAS}_isrexpands", "Replicas that joined in-sync sets"),
    "failed_isr_updates": (
        f"{_REPLICAS}_failedisrupdates",
        "Changes of in-sync sets that the controller refused",
    ),
}


class _Row(NamedTuple):
    """A replica on this broker, as it is at one moment."""

    labels: Labels
    start: int
    end: int
    size: int
    segments: int
    led: _Led | None


class _Led(NamedTuple):
    """The state of a partition as its leader knows it."""

    high_watermark: int
    replicas: int
    in_sync: int
    is_preferred: bool
    is_under_replicated: bool
    is_under_min: bool
    is_at_min: bool
    stable_lag: int
    replica_lag: int


class _Sums:
    """Totals over the replicas on this broker."""

    def __init__(self) -> None:
        self.under_replicated = self.under_min = self.at_min = 0
        self.reassigning = self.producers = self.lag = 0
        self.waiting_reads = self.waiting_appends = self.waiting_deletions = 0
        self.readers: set[Watcher] = set()

    def add_waits(self, partition: Partition) -> None:
        self.waiting_reads += len(partition.watchers)
        self.waiting_appends += partition.waiting_appends
        self.waiting_deletions += partition.waiting_deletions
        self.readers.update(partition.watchers)

    def add(self, led: _Led) -> None:
        self.under_replicated += led.is_under_replicated
        self.under_min += led.is_under_min
        self.at_min += led.is_at_min
        self.lag = max(self.lag, led.replica_lag)


class PartitionCollector:
    def __init__(
        self,
        partitions: Partitions,
        log_dirs: LogDirs,
        image: Callable[[], Image],
        *,
        sessions: FetchSessions,
        fetch_rate: Callable[[], float],
        node_id: int,
    ) -> None:
        self._sessions = sessions
        self._fetch_rate = fetch_rate
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._image = image
        self._node_id = node_id

    def collect(self) -> Iterator[Item]:
        yield from self._traffic()
        rows: list[_Row] = []
        led: list[tuple[_Row, _Led]] = []
        sums = _Sums()
        for partition in self._partitions.all():
            row = self._row(partition)
            rows.append(row)
            sums.producers += len(partition.log.producers)
            sums.add_waits(partition)
            if row.led is not None:
                led.append((row, row.led))
                state = self._image().partition(*partition.tp)
                sums.reassigning += state is not None and state.is_reassigning
                sums.add(row.led)
            yield None
        yield from self._replicas(len(rows), len(led), sums)
        yield from self._waits(sums)
        yield from self._logs(rows)
        yield from self._led(led)
        yield from release(led, rows)

    # Traffic

    def _traffic(self) -> Iterator[Item]:
        traffic = self._partitions.traffic
        total = Traffic()
        topics = [(Labels(topic=name), each) for name, each in traffic.topics.items()]
        total.add(traffic.gone)
        yield None
        for _, each in topics:
            total.add(each)
            yield None
        for field, (name, what) in _PER_TOPIC.items():
            yield Family(
                f"{_TOPICS}_{name}_total",
                "counter",
                f"{what}; by topic, and without that label for all topics, including deleted ones.",
            )
            yield Sample(NO_LABELS, getattr(total, field))
            for labels, each in topics:
                yield Sample(labels, getattr(each, field))
        for field, (name, what) in _IN_ALL.items():
            yield from one(f"{name}_total", "counter", f"{what}.", getattr(total, field))

    # Partitions

    def _row(self, partition: Partition) -> _Row:
        log = partition.log
        leader = partition.leader
        led: _Led | None = None
        if leader is not None:
            in_sync, replicas = len(leader.isr), len(leader.replicas)
            ends = [follower.log_end for follower in leader.followers.values()]
            led = _Led(
                partition.high_watermark,
                replicas,
                in_sync,
                leader.replicas[0] == self._node_id,
                in_sync < replicas,
                leader.is_under_min_isr,
                in_sync == leader.min_isr,
                partition.high_watermark - partition.last_stable_offset,
                log.end - max(0, min(ends, default=log.end)),
            )
        topic, index = partition.tp
        labels = Labels(topic=topic, partition=index)
        return _Row(labels, log.start, log.end, log.size, len(log.segments), led)

    def _replicas(self, here: int, led: int, sums: _Sums) -> Iterator[Item]:
        for name, what, value in (
            ("partitioncount", "Replicas on this broker.", here),
            ("leadercount", "Partitions led here.", led),
            (
                "underreplicatedpartitions",
                "Partitions led here with replicas that are not in sync.",
                sums.under_replicated,
            ),
            (
                "underminisrpartitioncount",
                "Partitions led here with fewer replicas in sync than min.insync.replicas.",
                sums.under_min,
            ),
            (
                "atminisrpartitioncount",
                "Partitions led here with exactly min.insync.replicas replicas in sync.",
                sums.at_min,
            ),
            (
                "offlinereplicacount",
                "Replicas here whose log directory has failed.",
                self._partitions.offline_count,
            ),
            (
                "reassigningpartitions",
                "Partitions led here whose replicas are being moved.",
                sums.reassigning,
            ),
            (
                "produceridcount",
                "Idempotent producers known, one for each partition.",
                sums.producers,
            ),
        ):
            yield from one(f"{_REPLICAS}_{name}", "gauge", what, value)
        yield Family(
            "kafka_server_replicafetchermanager_maxlag",
            "gauge",
            "Records by which the slowest follower of a partition led here is behind.",
        )
        yield Sample(Labels(clientId="Replica"), sums.lag)
        yield Family(
            "kafka_server_replicafetchermanager_minfetchrate",
            "gauge",
            "Responses per second from the leader that answered the fewest, in the last minute.",
        )
        yield Sample(Labels(clientId="Replica"), self._fetch_rate())

    def _waits(self, sums: _Sums) -> Iterator[Item]:
        """Requests that wait on partitions. Fetches of followers wait for all of theirs at once."""
        parked = 0
        for number, session in enumerate(self._sessions.all()):
            parked += session.feed is not None and session.feed.parked is not None
            if number % _AT_ONCE == 0:
                yield None
        for name, what, values in (
            (
                "purgatorysize",
                "Partitions that waiting requests wait for, each counted for each request.",
                (sums.waiting_appends, sums.waiting_reads + parked, sums.waiting_deletions),
            ),
            (
                "numdelayedoperations",
                "Requests that wait: fetches for records. A produce request and a deletion of "
                "records count once for each partition.",
                (sums.waiting_appends, len(sums.readers) + parked, sums.waiting_deletions),
            ),
        ):
            yield Family(f"kafka_server_delayedoperationpurgatory_{name}", "gauge", what)
            for kind, value in zip(("Produce", "Fetch", "DeleteRecords"), values, strict=True):
                yield Sample(Labels(delayedOperation=kind), value)

    def _logs(self, rows: list[_Row]) -> Iterator[Item]:
        for name, what, place in (
            ("size", "Bytes of a log.", 3),
            ("logstartoffset", "The first offset of a log.", 1),
            ("logendoffset", "The next free offset of a log.", 2),
            ("numlogsegments", "Segments of a log.", 4),
        ):
            yield Family(f"kafka_log_log_{name}", "gauge", what)
            for row in rows:
                yield Sample(row.labels, row[place])  # type: ignore[arg-type]
        directories = self._log_dirs.directories
        yield from one(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "gauge",
            "Log directories that have failed.",
            sum(not each.health.is_online for each in directories),
        )
        yield Family("kafka_log_logmanager_logdirectoryoffline", "gauge", "1 if it has failed.")
        for each in directories:
            yield Sample(Labels(logDirectory=each.path), int(not each.health.is_online))

    def _led(self, led: list[tuple[_Row, _Led]]) -> Iterator[Item]:
        me = self._node_id
        for name, what, value in (
            (
                "kafka_cluster_partition_underreplicated",
                "1 if replicas are not in sync; reported by the leader.",
                lambda row, at: int(at.is_under_replicated),
            ),
            (
                "kafka_cluster_partition_underminisr",
                "1 if fewer replicas are in sync than min.insync.replicas; reported by the leader.",
                lambda row, at: int(at.is_under_min),
            ),
            (
                "kafka_cluster_partition_atminisr",
                "1 if exactly min.insync.replicas replicas are in sync; reported by the leader.",
                lambda row, at: int(at.is_at_min),
            ),
            (
                "kafka_cluster_partition_insyncreplicascount",
                "Replicas in sync; reported by the leader.",
                lambda row, at: at.in_sync,
            ),
            (
                "kafka_cluster_partition_replicascount",
                "Replicas; reported by the leader.",
                lambda row, at: at.replicas,
            ),
            (
                "kafka_cluster_partition_laststableoffsetlag",
                "Records that read_committed consumers cannot see yet because of an open "
                "transaction; reported by the leader.",
                lambda row, at: at.stable_lag,
            ),
            (
                f"{_KAFKA_EXPORTER}_current_offset",
                "The high watermark; reported by the leader.",
                lambda row, at: at.high_watermark,
            ),
            (
                f"{_KAFKA_EXPORTER}_oldest_offset",
                "The first offset; reported by the leader.",
                lambda row, at: row.start,
            ),
            (
                f"{_KAFKA_EXPORTER}_leader",
                "The id of the leader, which reports it.",
                lambda row, at: me,
            ),
            (
                f"{_KAFKA_EXPORTER}_replicas",
                "Replicas; reported by the leader.",
                lambda row, at: at.replicas,
            ),
            (
                f"{_KAFKA_EXPORTER}_in_sync_replica",
                "Replicas in sync; reported by the leader.",
                lambda row, at: at.in_sync,
            ),
            (
                f"{_KAFKA_EXPORTER}_leader_is_preferred",
                "1 if the leader is the first of the replicas; reported by the leader.",
                lambda row, at: int(at.is_preferred),
            ),
            (
                f"{_KAFKA_EXPORTER}_under_replicated_partition",
                "1 if replicas are not in sync; reported by the leader.",
                lambda row, at: int(at.is_under_replicated),
            ),
        ):
            yield Family(name, "gauge", what)
            for row, at in led:
                yield Sample(row.labels, value(row, at))
