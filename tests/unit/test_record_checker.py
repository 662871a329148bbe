"""The judge of the soak must see each kind of anomaly, and nothing where there is none."""

from __future__ import annotations

import pytest

from harness.record_checker import History, Place, anomalies

ZERO: Place = ("t", 0)


def good() -> History:
    """Two records of one sender, acknowledged where they are, and given once to one consumer."""
    return History(
        acknowledged={"a:0": (ZERO, 0), "a:1": (ZERO, 1), "a:2": (ZERO, 4)},
        final={ZERO: [(0, "a:0"), (1, "a:1"), (4, "a:2")]},
        given=[("c", 1, ZERO, 0, "a:0"), ("c", 1, ZERO, 1, "a:1"), ("c", 1, ZERO, 4, "a:2")],
    )


def test_a_good_history_has_none() -> None:
    assert anomalies(good()) == {}


def test_a_record_may_be_given_again_after_a_new_assignment() -> None:
    history = good()
    history.given.append(("c", 2, ZERO, 1, "a:1"))
    history.given.append(("d", 1, ZERO, 0, "a:0"))
    assert anomalies(history) == {}


def test_a_record_that_nobody_answered_for_may_be_there() -> None:
    history = good()
    del history.acknowledged["a:1"]
    assert anomalies(history) == {}


def lose(history: History) -> None:
    history.acknowledged["a:3"] = (ZERO, 5)


def double(history: History) -> None:
    history.final[ZERO].append((5, "a:2"))
    history.given.append(("c", 1, ZERO, 5, "a:2"))


def turn_round(history: History) -> None:
    history.final[ZERO][:2] = [(0, "a:1"), (1, "a:0")]


def misplace(history: History) -> None:
    history.acknowledged["a:1"] = (ZERO, 2)


def give_another(history: History) -> None:
    history.given.append(("d", 1, ZERO, 0, "b:7"))


def skip(history: History) -> None:
    history.given += [("d", 1, ZERO, 0, "a:0"), ("d", 1, ZERO, 4, "a:2")]


def go_back(history: History) -> None:
    history.given.append(("c", 1, ZERO, 1, "a:1"))


def keep_back(history: History) -> None:
    history.given.pop()


def refuse(history: History) -> None:
    history.refused.add("a:1")


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lose, "lost-write"),
        (double, "duplicate"),
        (turn_round, "nonmonotonic-send"),
        (misplace, "inconsistent-offsets"),
        (give_another, "inconsistent-offsets"),
        (skip, "poll-skip"),
        (go_back, "nonmonotonic-poll"),
        (keep_back, "unseen"),
        (refuse, "refused, yet there"),
    ],
)
def test_each_anomaly_is_seen(spoil: object, kind: str) -> None:
    history = good()
    assert callable(spoil)
    spoil(history)
    assert kind in anomalies(history)
