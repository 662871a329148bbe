"""Tests of the baskets: records that come late, and the state of the version before."""

from datetime import UTC, datetime, timedelta

from examples.streams.baskets import Abandoned, Baskets, Click
from headwater.streams import Context, ListState, Processor, ProcessorTest, Record
from headwater.testing.plugin import MakeProcessorTest

AT = datetime(2026, 3, 1, 8, tzinfo=UTC)


class OldBaskets(Processor[str, Click, Abandoned]):
    items: ListState[str]

    def process(self, record: Record[str, Click], ctx: Context[str]) -> None:
        self.items.append(record.value.item)


def test_what_comes_late_is_in_its_place(headwater_processor: MakeProcessorTest) -> None:
    test = headwater_processor(Baskets, late="1 minute")
    for second, item, number in ((0, "ink", 1), (50, "ink", -1), (20, "pen", 2)):
        at = AT + timedelta(seconds=second)
        test.pipe(Click(item, number, at), key="ada", timestamp=at)
    assert test.values() == []
    (record,) = test.advance_to(AT + timedelta(hours=1))
    assert record.value == Abandoned("ada", ["pen"])
    assert record.timestamp == AT + timedelta(minutes=30, seconds=50)
    assert record.header("reason") == b"silence"


def test_the_baskets_of_version_1_are_kept() -> None:
    test = ProcessorTest(OldBaskets)
    test.pipe(Click("ink", 1, AT), key="ada", timestamp=AT)
    test.restart(Baskets)
    test.pipe(Click("pen", 1, AT), key="ada", timestamp=AT + timedelta(seconds=1))
    test.advance_to(AT + timedelta(hours=1))
    assert test.values() == [Abandoned("ada", ["ink", "pen"])]
