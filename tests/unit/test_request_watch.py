"""Requests that are only counted take a shorter way, and are counted alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.broker.context import Context
from headwater.broker.request_meters import RequestMeters
from headwater.broker.request_watch import RequestWatch
from headwater.io.clock import SystemClock
from headwater.net.connection import Connection
from headwater.observability import Log
from headwater.observability.requests import ApiMeter
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.create_topics import CreateTopicsResponse
from headwater.protocol.messages.heartbeat import HeartbeatResponse
from headwater.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


def produced(*codes: int) -> ProduceResponse:
    results = [
        PartitionProduceResponse(index=index, base_offset=0, error_code=code)
        for index, code in enumerate(codes)
    ]
    return ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=results)] if codes else []
    )


class Desk:
    """A watch whose clock stands at one second, when nothing else is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 1.0
        self.watch = RequestWatch(SystemClock(), Log(SystemClock(), self.lines.append))
        self.watch.now = lambda: self.now
        self.meters = RequestMeters()
        self.watch.count_in(self.meters)

    def serve(self, api: ApiKey, response: Message, *, at_once: bool, seconds: float) -> None:
        connection = cast(
            Connection,
            SimpleNamespace(
                active_at=self.now - 0.002,
                principal="User:a",
                listener="L",
                stream=SimpleNamespace(peer="p"),
            ),
        )
        context = Context(connection, 0, "client", None, api)
        parts = (bytearray(30),)
        request = cast(Any, SimpleNamespace())
        began = self.now
        if at_once:
            self.now += seconds
            self.watch.answered_at_once(context, request, response, parts, 100, began)
        else:
            seen = self.watch.begin(context, request, 100)
            self.now += seconds
            seen.answered(response, parts)


def told(meter: ApiMeter) -> dict[str, object]:
    stages = {name: (each.counts, each.total) for name, each in meter.stages().items()}
    sizes = (meter.request_bytes, meter.response_bytes)
    return {"versions": meter.versions, "errors": meter.errors, "sizes": sizes, **stages}


@pytest.mark.parametrize(
    ("api", "response"),
    [
        (ApiKey.PRODUCE, produced()),
        (ApiKey.PRODUCE, produced(0)),
        (ApiKey.PRODUCE, produced(3)),
        (ApiKey.PRODUCE, produced(0, 6, 6)),
        (ApiKey.HEARTBEAT, HeartbeatResponse(error_code=25)),
        (ApiKey.CREATE_TOPICS, CreateTopicsResponse(throttle_time_ms=70, topics=[])),
    ],
)
def test_a_request_that_is_answered_at_once_is_counted_like_any_other(
    api: ApiKey, response: Message
) -> None:
    desks = Desk(), Desk()
    for at_once, desk in enumerate(desks):
        for seconds in (0.00003, 0.02):
            desk.serve(api, response, at_once=bool(at_once), seconds=seconds)
    slowly, quickly = (told(desk.meters.of(api)) for desk in desks)
    assert slowly == quickly
    assert slowly["versions"] == {0: 2}


def test_a_slow_request_that_is_answered_at_once_has_its_line() -> None:
    desk = Desk()
    desk.watch.slow_seconds = 0.5
    desk.serve(ApiKey.PRODUCE, produced(0), at_once=True, seconds=0.4)
    assert desk.lines == []
    desk.serve(ApiKey.PRODUCE, produced(3), at_once=True, seconds=0.6)
    (line,) = desk.lines
    assert "slow request" in line
    assert "UNKNOWN_TOPIC_OR_PARTITION" in line


def test_nothing_takes_the_shorter_way_while_there_is_a_trace() -> None:
    desk = Desk()
    assert desk.watch.only_counts
    desk.watch.traces.open[cast(Any, "one")] = cast(Any, "a trace")
    desk.watch.refresh()
    assert not desk.watch.only_counts
