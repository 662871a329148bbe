"""AlterUserScramCredentials: sets and deletes SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.controller.users import result
from headwater.errors import ApiError
from headwater.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    try:
        check_cluster(role, context, Operation.ALTER)
        results = await role.controller.ask(
            lambda controller: controller.decide_alter_scram_credentials(request)
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return AlterUserScramCredentialsResponse(results=results)


def refuse(
    context: Context, request: AlterUserScramCredentialsRequest, refusal: ApiError
) -> AlterUserScramCredentialsResponse:
    named = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    users = dict.fromkeys(named)
    return AlterUserScramCredentialsResponse(results=[result(user, refusal) for user in users])
