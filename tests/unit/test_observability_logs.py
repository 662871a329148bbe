"""Loggers and their levels."""

from __future__ import annotations

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
