"""Counts of records, bytes and requests of a topic's partitions, as plain integers."""

from __future__ import annotations


class Traffic:
    """Counts of one topic on one broker. Nothing is counted for single records: a batch says how
    many it has."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_isr_updates",
        "failed_produces",
        "fetches",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0  # to clients
        self.bytes_rejected = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.produces = 0  # appends and reads of one partition, as Kafka counts them
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0

    def on_append(self, *, messages: int, size: int) -> None:
        self.produces += 1
        self.messages_in += messages
        self.bytes_in += size

    def on_refused(self, size: int) -> None:
        """Counts a batch that was too large."""
        self.bytes_rejected += size

    def on_failed_produce(self) -> None:
        self.failed_produces += 1

    def on_read(self) -> None:
        self.fetches += 1

    def on_failed_read(self) -> None:
        self.failed_fetches += 1

    def on_sent(self, size: int, *, to_follower: bool) -> None:
        if to_follower:
            self.replication_bytes_out += size
        else:
            self.bytes_out += size

    def on_copied(self, size: int) -> None:
        """Counts what was copied from a leader."""
        self.replication_bytes_in += size

    def on_in_sync(self, *, before: int, after: int) -> None:
        """Counts a change of an in-sync set of so many replicas."""
        self.isr_shrinks += after < before
        self.isr_expands += after > before

    def on_failed_isr_update(self) -> None:
        """Counts a change of an in-sync set that the controller has refused."""
        self.failed_isr_updates += 1

    def add(self, other: Traffic) -> None:
        for name in Traffic.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TopicTraffic:
    """The traffic of all topics."""

    __slots__ = ("gone", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, Traffic] = {}
        self.gone = Traffic()  # of topics that were deleted: totals never go back

    def of(self, topic: str) -> Traffic:
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = Traffic()
        return found

    def forget(self, topic: str) -> None:
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self.gone.add(gone)
