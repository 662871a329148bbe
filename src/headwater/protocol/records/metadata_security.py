"""Records of the metadata log about access control, credentials, tokens and quotas."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Float64, Int8, Int32, Int64, Message, Uuid, message, sensitive


@message(api=18, versions=(0, 0), flexible=0)
class AccessControlEntryRecord(Message):
    """An access control entry was created."""

    id: Uuid
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(api=19, versions=(0, 0), flexible=0)
class RemoveAccessControlEntryRecord(Message):
    """An access control entry was deleted."""

    id: Uuid


@message(api=11, versions=(0, 0), flexible=0)
class UserScramCredentialRecord(Message):
    """A SCRAM credential was set."""

    name: str
    mechanism: Int8
    salt: Annotated[bytes, sensitive]
    stored_key: Annotated[bytes, sensitive]
    server_key: Annotated[bytes, sensitive]
    iterations: Int32


@message(api=22, versions=(0, 0), flexible=0)
class RemoveUserScramCredentialRecord(Message):
    """A SCRAM credential was deleted."""

    name: str
    mechanism: Int8


@message(api=10, versions=(0, 0), flexible=0)
class DelegationTokenRecord(Message):
    """A delegation token was created or renewed."""

    owner: str
    requester: str
    renewers: list[str] = []
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: str


@message(api=26, versions=(0, 0), flexible=0)
class RemoveDelegationTokenRecord(Message):
    """A delegation token was removed."""

    token_id: str


@message(api=14, versions=(0, 0), flexible=0)
class ClientQuotaRecord(Message):
    """A quota was set or removed."""

    entity: list[EntityData] = []
    key: str
    value: Float64
    remove: bool


class EntityData(Message):
    """One of the `entity` of `ClientQuotaRecord`."""

    entity_type: str
    entity_name: str | None
