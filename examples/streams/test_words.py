"""Tests of the words: `pytest examples/streams/test_words.py`."""

from examples.streams.words import app
from headwater.testing.plugin import MakeTopologyTest


def test_words_are_counted_whatever_their_case(headwater_topology: MakeTopologyTest) -> None:
    test = headwater_topology(app)
    test.pipe("lines", "To be or not to be", "To do is to be")
    assert test.table("word-counts") == {"to": 4, "be": 3, "or": 1, "not": 1, "do": 1, "is": 1}
    assert test.table("counts") == test.table("word-counts")
