"""Every message in every version comes back from its bytes as it was, and only from all of them."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.protocol import (
    DecodeError,
    Message,
    decode,
    decoder,
    encode,
    encode_parts,
)
from tests.properties.protocol_values import every_class_and_version, label, messages

EVERY = pytest.mark.parametrize(("cls", "version"), every_class_and_version(), ids=label)


@EVERY
def test_a_message_comes_back_as_it_was(cls: type[Message], version: int) -> None:
    @settings(max_examples=6, database=None)
    @given(messages(cls, version))
    def check(message: Message) -> None:
        data = encode(message, version)
        assert decoder(cls, version)(data, 0) == (message, len(data))
        # A message may lie anywhere in a larger buffer, and what follows it does not matter.
        assert decode(cls, memoryview(b"**" + data + b"**"), version, 2) == message
        parts = encode_parts(message, version, b"head")
        assert b"".join(cast(list[bytes], parts)) == b"head" + data

    check()


@EVERY
def test_a_message_cut_short_is_refused(cls: type[Message], version: int) -> None:
    @settings(max_examples=3, database=None)
    @given(messages(cls, version), st.integers(0, 10**6))
    def check(message: Message, choice: int) -> None:
        data = encode(message, version)
        cuts = range(len(data)) if len(data) < 80 else (0, len(data) - 1, choice % len(data))
        for cut in cuts:
            with pytest.raises(DecodeError):
                decode(cls, data[:cut], version)

    check()
