"""In which version Kafka 4.3 writes a record's value, where that is not the newest."""

from __future__ import annotations

from headwater.groups.offsets import NEVER
from headwater.protocol.records.group_offsets import GroupMetadataValue, OffsetCommitValue
from headwater.protocol.schema import Message

_GROUP_METADATA = 3
# The only version that says when an offset expires. Clients of before Kafka 2.1 ask for it.
_OFFSET_THAT_EXPIRES = 1


def value_version(value: Message) -> int:
    if isinstance(value, GroupMetadataValue):
        return _GROUP_METADATA
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != NEVER:
        return _OFFSET_THAT_EXPIRES
    return type(value).VERSIONS[1]
