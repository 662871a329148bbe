"""Describing SCRAM credentials, without their secrets."""

from __future__ import annotations

from headwater.protocol.schema import Int8, Int16, Int32, Message, message


@message(api=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest(Message):
    """Asks for the credentials of some users, or of all."""

    users: list[UserName] | None = []


class UserName(Message):
    """One of the `users` of `DescribeUserScramCredentialsRequest`."""

    name: str


@message(api=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse(Message):
    """The mechanisms and iterations of each user."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


class DescribeUserScramCredentialsResult(Message):
    """One of the `results` of `DescribeUserScramCredentialsResponse`."""

    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = []


class CredentialInfo(Message):
    """One of the `credential_infos` of `DescribeUserScramCredentialsResult`."""

    mechanism: Int8 = 0
    iterations: Int32 = 0
