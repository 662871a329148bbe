"""SCRAM credentials of users. A password never leaves this process: it is hashed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headwater.client.admin.results import check, only, outcome
from headwater.client.errors import ClientError, error_for
from headwater.errors import ErrorCode
from headwater.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headwater.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headwater.security.sasl import SCRAM_NAMES, SCRAM_NUMBERS
from headwater.security.sasl.scram import salted_password

if TYPE_CHECKING:
    from headwater.client.admin import Admin

ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]

_SALT_BYTES = 32
ITERATIONS_DEFAULT = 4096


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The mechanism and the iterations of a credential."""

    mechanism: str
    iterations: int


async def describe_scram(
    admin: Admin, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
) -> dict[str, tuple[ScramCredential, ...] | ClientError]:
    """Returns the credentials of these users, or of all that have some; never their secrets."""
    wanted = None if users is None else list(dict.fromkeys(users))
    answer = await admin._router.anyone(
        DescribeUserScramCredentialsRequest(
            users=None if wanted is None else [UserName(name=user) for user in wanted]
        ),
        timeout_ms=timeout_ms,
    )
    check(answer.error_code, "the SCRAM credentials", answer.error_message)
    results: dict[str, tuple[ScramCredential, ...] | ClientError] = {}
    for each in answer.results:
        if each.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            results[each.user] = ()
        elif each.error_code:
            results[each.user] = error_for(each.error_code, f"user {each.user}", each.error_message)
        else:
            results[each.user] = tuple(
                ScramCredential(SCRAM_NAMES.get(info.mechanism, "unknown"), info.iterations)
                for info in each.credential_infos
            )
    return results


async def set_scram(
    admin: Admin,
    user: str,
    password: str | bytes,
    *,
    mechanism: ScramMechanism = "SCRAM-SHA-512",
    iterations: int = ITERATIONS_DEFAULT,
    timeout_ms: int | None = None,
) -> None:
    """Sets or replaces the password of a user."""
    salt = admin._router.random_bytes(_SALT_BYTES)
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=SCRAM_NUMBERS[mechanism],
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, iterations),
    )
    only(await _alter(admin, AlterUserScramCredentialsRequest(upsertions=[upsertion]), timeout_ms))


async def delete_scram(
    admin: Admin,
    credentials: Mapping[str, ScramMechanism],
    *,
    timeout_ms: int | None = None,
) -> dict[str, ClientError | None]:
    """Deletes credentials of users: `{"alice": "SCRAM-SHA-512"}`. Returns the error of each, or
    None."""
    request = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name=user, mechanism=SCRAM_NUMBERS[mechanism])
            for user, mechanism in credentials.items()
        ]
    )
    return await _alter(admin, request, timeout_ms)


async def _alter(
    admin: Admin, request: AlterUserScramCredentialsRequest, timeout_ms: int | None
) -> dict[str, ClientError | None]:
    answer = await admin._router.controller(request, timeout_ms=timeout_ms)
    return {
        each.user: outcome(each.error_code, f"user {each.user}", each.error_message)
        for each in answer.results
    }
