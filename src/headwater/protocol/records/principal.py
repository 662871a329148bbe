"""A client's principal as a broker hands it on to the controller, inside an Envelope."""

from __future__ import annotations

from headwater.protocol.schema import Message, message


@message(versions=(0, 0), flexible=0)
class DefaultPrincipalData(Message):
    """The sender of a request, as Kafka's default principal builder writes it."""

    type: str
    name: str
    token_authenticated: bool
