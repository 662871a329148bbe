"""Every code of the protocol becomes an exception that says what it is about."""

from __future__ import annotations

import inspect
import pickle

import pytest

import headwater
from headwater.client import errors
from headwater.client.errors import (
    ClientError,
    DeserializationFailed,
    NotLeader,
    Refused,
    RetriableError,
    UnknownTopic,
    error_for,
)
from headwater.errors import RETRIABLE, ErrorCode


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_every_code_has_an_exception_that_names_it(code: ErrorCode) -> None:
    error = error_for(code, "topic orders")
    assert error.code is code
    assert "topic orders" in str(error)
    assert code.name in str(error)
    assert len(str(error)) > len(f"topic orders:  ({code.name})") + 10, "it says what to do"
    # A retriable error of the clients may stand for a code that Kafka's producer gives up on, such
    # as a broker that is not there; what Kafka retries is never final here.
    if code in RETRIABLE:
        assert isinstance(error, RetriableError)


def test_a_code_that_is_newer_than_we_are_is_said_as_a_number() -> None:
    error = error_for(9999, "topic orders")
    assert type(error) is Refused
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "error 9999" in str(error)


def test_what_the_broker_said_is_passed_on() -> None:
    text = str(error_for(ErrorCode.POLICY_VIOLATION, "topic orders", "too many partitions"))
    assert text == "topic orders: too many partitions (POLICY_VIOLATION)"


def test_the_tree_tells_apart_what_callers_must_tell_apart() -> None:
    assert isinstance(error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t"), UnknownTopic)
    assert isinstance(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t"), NotLeader)


def test_the_package_exports_every_error() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, ClientError)
    }
    assert classes <= set(headwater.__all__)
    assert all(getattr(headwater, name) is getattr(errors, name) for name in classes)


def test_an_error_survives_a_journey_between_processes() -> None:
    error = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic orders")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.code) == (type(error), str(error), error.code)


def test_a_name_that_the_package_has_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Producr"):
        headwater.Producr  # type: ignore[attr-defined]  # noqa: B018


def test_a_bad_name_is_answered_with_what_a_name_may_be() -> None:
    text = str(error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, "topic ../x"))
    assert "../x" in text
    assert "1 to 249" in text


def test_an_error_about_a_place_in_a_partition_survives_pickling_with_its_place() -> None:
    record = headwater.ConsumedRecord[bytes | None, bytes | None]("t", 3, 7, value=b"?")
    error = DeserializationFailed(
        "bad", topic="t", partition=3, offset=7, part="key", record=record
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.topic, copy.partition, copy.offset, copy.part) == ("t", 3, 7, "key")
    assert copy.record == record
