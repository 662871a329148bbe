"""Changing SCRAM credentials."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, message, sensitive


@message(api=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest(Message):
    """Delete and set these credentials."""

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class ScramCredentialDeletion(Message):
    """One of the `deletions` of `AlterUserScramCredentialsRequest`."""

    name: str
    mechanism: Int8


class ScramCredentialUpsertion(Message):
    """One of the `upsertions` of `AlterUserScramCredentialsRequest`."""

    name: str
    mechanism: Int8
    iterations: Int32
    salt: Annotated[bytes, sensitive]
    salted_password: Annotated[bytes, sensitive]


@message(api=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse(Message):
    """The outcome for each user."""

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []


class AlterUserScramCredentialsResult(Message):
    """One of the `results` of `AlterUserScramCredentialsResponse`."""

    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
