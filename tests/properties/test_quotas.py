"""Meters, buckets and the choice of quotas against plain models that keep everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.quotas.clients import ClientQuotas, find_quota
from headwater.quotas.entities import PRODUCE, Entity, entity_of
from headwater.quotas.rates import Bucket, Meter, Windows

BOUND = 1000.0
# Times and amounts that are exact in binary: the models compare them.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda eighths: eighths / 8),
        st.integers(0, 80).map(lambda kilos: kilos * 125.0),
    ),
    max_size=60,
)
WINDOWS = st.builds(Windows, st.integers(1, 12), st.sampled_from((0.5, 1.0, 2.0)))


class NaiveMeter:
    """Every amount that was ever taken, in windows that begin with the first amount after the one
    before is over."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.begun: list[float] = []
        self.taken: list[tuple[float, float, float]] = []  # window, when, how much
        self.due: float | None = None

    def kept(self, now: float) -> list[tuple[float, float, float]]:
        horizon = now - self.windows.number * self.windows.seconds
        last = {window: max(t for w, t, _ in self.taken if w == window) for window in self.begun}
        return [each for each in self.taken if last[each[0]] > horizon]

    def take(self, amount: float, now: float) -> float:
        kept = self.kept(now)
        if not kept or now - kept[-1][0] >= self.windows.seconds:
            self.begun.append(now)
        window = self.begun[-1]
        self.taken.append((window, now, amount))
        kept = self.kept(now)
        if self.due is not None and now - self.due > self.windows.seconds:
            self.due = None
        if self.due is not None:
            self.due += amount / BOUND
        else:
            total = sum(each for _, _, each in kept)
            full = (self.windows.number - 1) * self.windows.seconds
            if total > BOUND * max(now - kept[0][0], full, 0.001):
                self.due = kept[0][0] + total / BOUND
        return 0.0 if self.due is None else max(0.0, self.due - now)


@given(STEPS, WINDOWS)
def test_a_meter_says_what_one_that_forgets_nothing_says(
    steps: list[tuple[float, float]], windows: Windows
) -> None:
    meter, naive = Meter(BOUND, windows), NaiveMeter(windows)
    now = 0.0
    for pause, amount in steps:
        now += pause
        assert abs(meter.take(amount, now) - naive.take(amount, now)) < 1e-6


@given(STEPS, WINDOWS)
def test_who_waits_as_told_takes_no_more_than_the_quota(
    steps: list[tuple[float, float]], windows: Windows
) -> None:
    """Over any time: what the windows allow at once, and the rate. One amount may exceed it, and is
    paid later."""
    meter = Meter(BOUND, windows)
    now, taken = 0.0, 0.0
    log: list[tuple[float, float]] = []
    for pause, amount in steps:
        now += pause
        taken += amount
        log.append((now, amount))
        now += meter.take(amount, now)
    largest = max((amount for _, amount in log), default=0.0)
    # A window that overlaps the horizon counts as a whole, as in Kafka: hence one more.
    saved = BOUND * windows.seconds * (windows.number + 1)
    for first, (start, _) in enumerate(log):
        total = 0.0
        for when, amount in log[first:]:
            total += amount
            assert total <= saved + BOUND * (when - start) + largest + 1e-6


@given(STEPS, WINDOWS)
def test_a_fetch_that_is_allowed_leaves_the_meter_as_a_produce_does(
    steps: list[tuple[float, float]], windows: Windows
) -> None:
    offered, taken = Meter(BOUND, windows), Meter(BOUND, windows)
    now = 0.0
    for pause, amount in steps:
        now += pause
        while (wait := offered.offer(amount, now)) > 0:
            now += wait
        taken.take(amount, now)
        assert abs(offered.rate(now) - taken.rate(now)) < 1e-6


@given(STEPS, WINDOWS)
def test_a_bucket_never_gives_more_than_came_back(
    steps: list[tuple[float, float]], windows: Windows
) -> None:
    bucket = Bucket(BOUND, windows, 0.0)
    burst = tokens = BOUND * windows.number * windows.seconds
    now = 0.0
    for pause, amount in steps:
        now += pause
        tokens = min(burst, tokens + pause * BOUND)
        assert abs(bucket.wait(now) - max(0.0, -tokens / BOUND)) < 1e-6
        tokens -= amount
        assert abs(bucket.take(amount, now) - max(0.0, -tokens / BOUND)) < 1e-6


NAMES = st.sampled_from((None, "a", "b", ""))
ENTITIES = st.dictionaries(st.sampled_from(("user", "client-id")), NAMES, min_size=1).map(
    lambda names: entity_of(names.items())
)


def naive_quota(quotas: dict[Entity, float], user: str, client_id: str) -> float | None:
    """The one that matches best: users before client ids, a name before the default, and more
    names before fewer."""

    def matches(entity: Entity) -> bool:
        who = {"user": user, "client-id": client_id}
        return all(name is None or name == who[kind] for kind, name in entity)

    def rank(entity: Entity) -> tuple[int, int, int]:
        named = dict(entity)
        return (
            (1 + ("user" in named and named["user"] is not None)) if "user" in named else 0,
            (1 + (named["client-id"] is not None)) if "client-id" in named else 0,
            0,
        )

    found = [entity for entity in quotas if matches(entity)]
    return quotas[max(found, key=rank)] if found else None


@given(st.dictionaries(ENTITIES, st.floats(1, 1e9)), st.sampled_from("abc"), st.sampled_from("abc"))
def test_the_best_match_applies(quotas: dict[Entity, float], user: str, client_id: str) -> None:
    found = find_quota({each: {PRODUCE: v} for each, v in quotas.items()}, PRODUCE, user, client_id)
    assert (found and found.value) == naive_quota(quotas, user, client_id)


@given(st.lists(st.tuples(ENTITIES, st.sampled_from((None, 1e3, 2e3))), min_size=1, max_size=20))
def test_changes_lead_where_the_last_state_leads(
    changes: list[tuple[Entity, float | None]],
) -> None:
    """A node that followed every change limits clients as one that started with the last."""
    followed, fresh = (ClientQuotas(Windows(11, 1.0), Windows(11, 1.0)) for _ in range(2))
    quotas: dict[Entity, dict[str, float]] = {}
    for entity, value in changes:
        if value is None:
            quotas.pop(entity, None)
        else:
            quotas[entity] = {PRODUCE: value}
        followed.follow(quotas)
        followed.limits_of("a", "b", 0.0)
    fresh.follow(quotas)
    for user, client_id in (("a", "b"), ("b", ""), ("c", "a")):
        bounds = []
        for each in (followed, fresh):
            limits = each.limits_of(user, client_id, 0.0)
            bounds.append(limits and limits.produce and limits.produce.bound)
        assert bounds[0] == bounds[1]
    assert followed.is_on == fresh.is_on
