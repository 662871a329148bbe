"""Records of bulk producers wait a moment for more before a follower gets them."""

from __future__ import annotations

from headwater.replication.gathering import Gathering

BATCH = 16_000


def append(gathering: Gathering, count: int = 1, size: int = BATCH) -> None:
    for _ in range(count):
        gathering.on_append(size)


def wait(gathering: Gathering, *, before: int = 1, during: int = 0) -> bool:
    """Appends, waits to the end if that is worth while, and answers; returns whether it waited."""
    append(gathering, before)
    is_waiting = gathering.is_worth_while
    if is_waiting:
        gathering.on_wait()
        append(gathering, during)
        gathering.on_timeout()
    gathering.on_answer()
    return is_waiting


def test_bulk_records_wait_for_more() -> None:
    gathering = Gathering()
    assert not gathering.is_worth_while
    append(gathering)
    assert gathering.is_worth_while


def test_small_records_do_not_wait() -> None:
    gathering = Gathering()
    append(gathering, 100, size=200)
    assert not gathering.is_worth_while


def test_a_large_answer_does_not_wait() -> None:
    gathering = Gathering()
    append(gathering, 20)
    assert not gathering.is_worth_while


def test_nobody_waits_for_more_appends_than_came_last_time() -> None:
    gathering = Gathering()
    assert wait(gathering, before=1, during=3)
    append(gathering, 3)
    assert gathering.is_worth_while
    append(gathering)
    assert not gathering.is_worth_while


def test_now_and_then_a_wait_learns_that_more_producers_write() -> None:
    gathering = Gathering()
    wait(gathering, before=1, during=1)
    waits = [wait(gathering, before=2, during=4) for _ in range(20)]
    assert True in waits
    append(gathering, 3)
    assert gathering.is_worth_while


def test_a_producer_that_writes_alone_hardly_ever_waits() -> None:
    gathering = Gathering()
    waits = [wait(gathering) for _ in range(20_000)]
    assert sum(waits) < 20
    assert not any(waits[5000:5100])


def test_company_for_a_lone_producer_is_noticed() -> None:
    gathering = Gathering()
    for _ in range(100):
        wait(gathering)
    waits = [wait(gathering, during=2) for _ in range(1000)]
    assert sum(waits) > 100


def test_answers_without_records_leave_the_rest_as_long_as_it_is() -> None:
    gathering = Gathering()
    while wait(gathering):
        pass
    for _ in range(100_000):
        gathering.on_answer()
    append(gathering)
    assert not gathering.is_worth_while
