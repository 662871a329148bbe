"""Incremental fetch sessions (KIP-227), without a broker."""

from __future__ import annotations

import pytest

from headwater.client.consumer.fetch_session import FetchSession, SessionRequest, WantedPartition
from headwater.errors import ErrorCode
from headwater.model import ZERO_ID, TopicPartition
from headwater.protocol.messages.fetch import FetchResponse

ID, OTHER_ID = b"\x01" * 16, b"\x02" * 16


def want(partition: int, offset: int = 0, *, topic_id: bytes = ID) -> WantedPartition:
    return WantedPartition(TopicPartition("t", partition), topic_id, offset, leader_epoch=3)


def session() -> FetchSession:
    return FetchSession(partition_bytes_max=1000)


def opened(*wants: WantedPartition) -> FetchSession:
    """A session that the broker knows by the number 7."""
    made = session()
    made.next_request(wants, with_ids=True)
    assert made.on_response(FetchResponse(session_id=7))
    return made


def asked(ask: SessionRequest) -> list[tuple[int, int]]:
    return [(each.partition, each.fetch_offset) for t in ask.topics for each in t.partitions]


def forgotten(ask: SessionRequest) -> list[int]:
    return [each for topic in ask.forgotten for each in topic.partitions]


def test_the_first_request_asks_for_all_and_for_a_session() -> None:
    ask = session().next_request([want(0, 5), want(1, 6)], with_ids=True)
    assert (ask.session_id, ask.epoch) == (0, 0)
    assert asked(ask) == [(0, 5), (1, 6)]
    (topic,) = ask.topics
    assert (topic.topic, topic.topic_id) == ("t", ID)
    assert topic.partitions[0].current_leader_epoch == 3
    assert topic.partitions[0].partition_max_bytes == 1000


def test_later_requests_say_only_what_changed() -> None:
    made = opened(want(0), want(1), want(2))
    ask = made.next_request([want(0), want(1, 9), want(3)], with_ids=True)
    assert (ask.session_id, ask.epoch) == (7, 1)
    assert asked(ask) == [(1, 9), (3, 0)]
    assert forgotten(ask) == [2]
    made.on_response(FetchResponse(session_id=7))
    ask = made.next_request([want(0), want(1, 9), want(3)], with_ids=True)
    assert (ask.epoch, asked(ask), forgotten(ask)) == (2, [], [])


def test_a_recreated_topic_is_forgotten_by_its_old_id() -> None:
    made = opened(want(0))
    ask = made.next_request([want(0, topic_id=OTHER_ID)], with_ids=True)
    assert [topic.topic_id for topic in ask.topics] == [OTHER_ID]
    assert [topic.topic_id for topic in ask.forgotten] == [ID]
    assert made.topic("", OTHER_ID) == "t"
    assert made.topic("", ID) is None


def test_a_session_that_the_broker_dropped_is_started_again() -> None:
    made = opened(want(0))
    made.next_request([want(0)], with_ids=True)
    assert not made.on_response(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    ask = made.next_request([want(0)], with_ids=True)
    assert (ask.session_id, ask.epoch, asked(ask)) == (0, 0, [(0, 0)])


@pytest.mark.parametrize("how", ["no answer", "wrong epoch"])
def test_a_session_that_is_out_of_step_is_replaced(how: str) -> None:
    made = opened(want(0))
    made.next_request([want(0)], with_ids=True)
    if how == "no answer":
        made.on_no_response()
    else:
        assert not made.on_response(FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
    ask = made.next_request([want(0)], with_ids=True)
    assert (ask.session_id, ask.epoch, asked(ask)) == (7, 0, [(0, 0)])
    made.on_response(FetchResponse(session_id=8))
    assert made.next_request([want(0)], with_ids=True).epoch == 1


def test_a_broker_without_sessions_gets_complete_requests() -> None:
    made = session()
    for _ in range(2):
        ask = made.next_request([want(0)], with_ids=True)
        assert (ask.session_id, ask.epoch, asked(ask)) == (0, 0, [(0, 0)])
        assert made.on_response(FetchResponse(session_id=0))
    assert made.closing_request() is None


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    made = opened(want(0))
    ask = made.next_request([want(0), want(1, topic_id=ZERO_ID)], with_ids=False)
    assert (ask.session_id, ask.epoch) == (7, 0)
    assert made.topic("t", ZERO_ID) == "t"


def test_the_end_of_a_session_names_it() -> None:
    last = opened(want(0)).closing_request()
    assert last is not None
    assert (last.session_id, last.epoch) == (7, -1)


def test_a_request_of_the_side_channel_has_no_session() -> None:
    made = FetchSession(partition_bytes_max=1000, is_lasting=False)
    for offset in (0, 5):
        ask = made.next_request([want(0, offset)], with_ids=True)
        assert (ask.session_id, ask.epoch, asked(ask)) == (0, -1, [(0, offset)])
        assert made.on_response(FetchResponse(session_id=0))
