"""SCRAM credentials of users (KIP-554).

The request carries salted passwords. The records have what a server needs to check a proof, from
which nobody can log in.
"""

from __future__ import annotations

from headwater.controller.decision import Decision
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.metadata.features import LEVEL_SCRAM
from headwater.protocol import Message
from headwater.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headwater.protocol.records.metadata_security import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from headwater.security.sasl import SCRAM_NAMES, SCRAM_NUMBERS
from headwater.security.sasl.scram import ITERATIONS_MIN, ITERATIONS_STORED_MAX, scram_keys

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_scram_credentials(
    state: ControllerState, request: AlterUserScramCredentialsRequest
) -> Decision[list[AlterUserScramCredentialsResult]]:
    """Deletes and sets credentials. Each user succeeds or fails by itself, and only once: a user
    who is named twice is left as before, even with different mechanisms."""
    outcomes: dict[str, Message | ApiError] = {}
    changes: list[Change] = [*request.deletions, *request.upsertions]
    for change in changes:
        before = outcomes.get(change.name)
        try:
            if isinstance(before, Message):
                raise ApiError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    f"user {change.name!r} is named more than once in this request",
                )
            outcomes[change.name] = before or _record(state, change)
        except ApiError as refusal:
            outcomes[change.name] = refusal
    return Decision(
        [record for record in outcomes.values() if isinstance(record, Message)],
        [
            result(user, outcome if isinstance(outcome, ApiError) else None)
            for user, outcome in outcomes.items()
        ],
    )


def result(user: str, refusal: ApiError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=user,
        error_code=refusal.code if refusal else 0,
        error_message=refusal.message if refusal else None,
    )


def _record(state: ControllerState, change: Change) -> Message:
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user must have a name")
    mechanism = SCRAM_NAMES.get(change.mechanism)
    if mechanism is None:
        raise ApiError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"SCRAM mechanism {change.mechanism} is unknown, expected one of "
            + ", ".join(f"{number} ({name})" for number, name in SCRAM_NAMES.items()),
        )
    if state.image.metadata_version < LEVEL_SCRAM:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "SCRAM credentials need metadata.version 3.5-IV2 or later",
        )
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in state.image.scram:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"user {change.name!r} has no {mechanism} credential",
            )
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_STORED_MAX:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{change.iterations} iterations, expected {ITERATIONS_MIN} to {ITERATIONS_STORED_MAX}",
        )
    return credential_record(
        change.name, mechanism, change.salted_password, change.salt, change.iterations
    )


def credential_record(
    user: str, mechanism: str, salted: bytes, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    keys = scram_keys(mechanism, salted)
    return UserScramCredentialRecord(
        name=user,
        mechanism=SCRAM_NUMBERS[mechanism],
        salt=salt,
        stored_key=keys.stored,
        server_key=keys.server,
        iterations=iterations,
    )
