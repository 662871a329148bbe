"""Incremental fetch sessions: epochs, slots, and what counts as news."""

from __future__ import annotations

from random import Random

import pytest

from headwater.broker.fetch_sessions import FetchSessions, Session, Wanted
from headwater.errors import ApiError, ErrorCode


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(slots, Random(1))


def create(cache: FetchSessions, now: float = 0.0, *, privileged: bool = False) -> Session | None:
    return cache.create(now=now, uses_topic_ids=True, privileged=privileged)


def test_each_incremental_fetch_moves_the_epoch_on() -> None:
    cache = sessions()
    session = create(cache)
    assert session is not None
    for epoch in (1, 2, 3):
        assert cache.find(session.id, epoch, now=1.0, uses_topic_ids=True) is session
    with pytest.raises(ApiError) as refused:
        cache.find(session.id, 3, now=1.0, uses_topic_ids=True)
    assert refused.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_wraps_to_one() -> None:
    cache = sessions()
    session = create(cache)
    assert session is not None
    session.epoch = 2**31 - 1
    cache.find(session.id, 2**31 - 1, now=1.0, uses_topic_ids=True)
    assert session.epoch == 1


def test_an_unknown_session_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        sessions().find(77, 1, now=0.0, uses_topic_ids=True)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_does_not_change_between_names_and_ids() -> None:
    cache = sessions()
    session = create(cache)
    assert session is not None
    with pytest.raises(ApiError) as refused:
        cache.find(session.id, 1, now=0.0, uses_topic_ids=False)
    assert refused.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_cache_gives_no_session_until_one_is_long_unused() -> None:
    cache = sessions(slots=2)
    first, second = create(cache, 0.0), create(cache, 0.0)
    assert first is not None
    assert second is not None
    assert create(cache, 60.0) is None
    cache.find(first.id, 1, now=100.0, uses_topic_ids=True)
    third = create(cache, 130.0)
    assert third is not None, "the second was unused for over two minutes"
    with pytest.raises(ApiError):
        cache.find(second.id, 1, now=130.0, uses_topic_ids=True)


def test_a_follower_takes_the_slot_of_a_consumer() -> None:
    cache = sessions(slots=1)
    assert create(cache) is not None
    assert create(cache, privileged=True) is not None
    assert (len(cache), cache.evictions) == (1, 1)


def news(wanted: Wanted, high_watermark: int, *, error: int = 0, has_records: bool = False) -> bool:
    return wanted.is_news(
        error=error, has_records=has_records, high_watermark=high_watermark, log_start=0
    )


def test_only_what_changed_is_news() -> None:
    wanted = Wanted("t", bytes(16), 0)
    assert news(wanted, 5), "the first answer always is"
    assert not news(wanted, 5)
    assert news(wanted, 6)
    assert news(wanted, 6, has_records=True)
    assert not news(wanted, 6)


def test_an_error_is_news_and_so_is_its_end() -> None:
    wanted = Wanted("t", bytes(16), 0)
    news(wanted, 5)
    assert news(wanted, -1, error=6)
    assert news(wanted, -1, error=6)
    assert news(wanted, 5)
