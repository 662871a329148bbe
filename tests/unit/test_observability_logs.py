"""Loggers and their levels."""

from __future__ import annotations

import json

import pytest

from headwater.io.clock import SystemClock
from headwater.observability import Log


def lines_of(log: Log, lines: list[str]) -> list[str]:
    lines.clear()
    log.debug("d")
    log.info("i")
    return [line.split()[1] for line in lines]


def test_a_named_logger_follows_the_one_it_came_from_until_it_has_a_level() -> None:
    lines: list[str] = []
    root = Log(SystemClock(), lines.append)
    requests, storage = root.named("requests"), root.named("storage")
    assert root.named("requests") is requests
    assert lines_of(requests, lines) == ["INFO"]
    requests.level = "debug"
    assert lines_of(requests, lines) == ["DEBUG", "INFO"]
    assert lines_of(storage, lines) == ["INFO"]
    root.level = "error"
    assert lines_of(storage, lines) == []
    assert lines_of(requests, lines) == ["DEBUG", "INFO"]
    requests.follow(root)
    assert lines_of(requests, lines) == []
    assert list(root.loggers()) == ["root", "requests", "storage"]


def test_a_debug_line_names_its_logger() -> None:
    lines: list[str] = []
    Log(SystemClock(), lines.append, "debug").named("requests").debug("FETCH v13")
    assert lines[0].endswith(" DEBUG requests: FETCH v13\n")


class SetClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.seconds * 1000)


HOSTILE = "a\nb\r\x1b[31mred\x00\u2028\u202e\x9b"


@pytest.mark.parametrize("style", ["text", "json"])
def test_what_a_peer_sends_cannot_write_lines_or_colours_of_its_own(style: str) -> None:
    lines: list[str] = []
    log = Log(SetClock(), lines.append, "debug")
    log.write_as(style)
    log.warn(HOSTILE, client=HOSTILE)
    log.info(HOSTILE)
    log.named("part").debug(HOSTILE)
    log.failure(HOSTILE, ValueError(HOSTILE))
    assert len(lines) == 4
    for line in lines:
        assert line.endswith("\n")
        assert line[:-1].isprintable(), line


def test_fields_cannot_be_forged_from_within_a_value() -> None:
    lines: list[str] = []
    log = Log(SetClock(), lines.append)
    log.info("authorization denied", principal='User:x host=1.2.3.4 "', api="FETCH", empty="")
    assert lines == [
        "2023-11-14T22:13:20.000Z INFO  authorization denied: "
        'principal="User:x host=1.2.3.4 \\"" api=FETCH empty=""\n'
    ]


def test_a_line_of_json_has_its_fields_by_name() -> None:
    lines: list[str] = []
    log = Log(SetClock(), lines.append)
    log.write_as("json", node=3)
    log.named("headwater.requests").warn("slow request", total_ms=12, client="a b")
    assert json.loads(lines[0]) == {
        "time": "2023-11-14T22:13:20.000Z",
        "level": "warn",
        "logger": "headwater.requests",
        "message": "slow request",
        "node": 3,
        "total_ms": 12,
        "client": "a b",
    }


def test_a_line_has_a_length_limit() -> None:
    for style in ("text", "json"):
        lines: list[str] = []
        log = Log(SetClock(), lines.append)
        log.write_as(style)
        log.info("x" * 1_000_000, field="y" * 1_000_000)
        assert len(lines[0]) < 50_000


def test_a_flood_of_lines_is_cut_and_what_was_left_out_is_counted() -> None:
    clock = SetClock()
    lines: list[str] = []
    log = Log(clock, lines.append).named("headwater.connections")
    for _ in range(10_000):
        log.bounded.warn("closed")
    assert len(lines) == 500
    clock.seconds += 60
    log.bounded.warn("closed")
    assert lines[500].endswith(
        "WARN  9500 lines of headwater.connections were left out: there were too many\n"
    )
    assert lines[501].endswith("closed\n")
    log.warn("not bounded")
    assert len(lines) == 503


def test_lines_below_the_level_use_up_nothing() -> None:
    clock = SetClock()
    lines: list[str] = []
    log = Log(clock, lines.append, "error")
    for _ in range(1000):
        log.bounded.warn("closed")
    log.level = "info"
    log.bounded.warn("closed")
    assert len(lines) == 1
