"""DescribeUserScramCredentials (key 50)."""

from __future__ import annotations

from headwater.protocol.schema import Int8, Int16, Int32, Message, message


@message(api=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest(Message):
    """The message `DescribeUserScramCredentialsRequest`."""

    users: list[UserName] | None = []


class UserName(Message):
    """A part of `DescribeUserScramCredentialsRequest`."""

    name: str


@message(api=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse(Message):
    """The message `DescribeUserScramCredentialsResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


class DescribeUserScramCredentialsResult(Message):
    """A part of `DescribeUserScramCredentialsResponse`."""

    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = []


class CredentialInfo(Message):
    """A part of `DescribeUserScramCredentialsResponse`."""

    mechanism: Int8 = 0
    iterations: Int32 = 0
