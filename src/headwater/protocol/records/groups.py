"""The classes of the records of `__consumer_offsets`, by the number at the start of their key."""

from __future__ import annotations

from importlib import import_module

from headwater.protocol.schema import Message

# The number of a key, the module it is in, and what stands before Key and Value in its classes.
_RECORDS = {
    0: ("group_offsets", "LegacyOffsetCommit"),
    1: ("group_offsets", "OffsetCommit"),
    2: ("group_offsets", "GroupMetadata"),
    3: ("group_consumer", "ConsumerGroupMetadata"),
    4: ("group_consumer", "ConsumerGroupPartitionMetadata"),
    5: ("group_consumer", "ConsumerGroupMemberMetadata"),
    6: ("group_consumer", "ConsumerGroupTargetAssignmentMetadata"),
    7: ("group_consumer", "ConsumerGroupTargetAssignmentMember"),
    8: ("group_consumer", "ConsumerGroupCurrentMemberAssignment"),
    10: ("group_share", "ShareGroupMemberMetadata"),
    11: ("group_share", "ShareGroupMetadata"),
    12: ("group_share", "ShareGroupTargetAssignmentMetadata"),
    13: ("group_share", "ShareGroupTargetAssignmentMember"),
    14: ("group_share", "ShareGroupCurrentMemberAssignment"),
    15: ("group_share", "ShareGroupStatePartitionMetadata"),
    16: ("group_consumer", "ConsumerGroupRegularExpression"),
    17: ("group_streams", "StreamsGroupMetadata"),
    19: ("group_streams", "StreamsGroupMemberMetadata"),
    20: ("group_streams", "StreamsGroupTargetAssignmentMetadata"),
    21: ("group_streams", "StreamsGroupTargetAssignmentMember"),
    22: ("group_streams", "StreamsGroupCurrentMemberAssignment"),
    23: ("group_streams", "StreamsGroupTopology"),
}


def group_record(number: int) -> tuple[type[Message], type[Message]] | None:
    """The classes of a record's key and value, or None for a record from the future."""
    if number not in _RECORDS:
        return None
    module, name = _RECORDS[number]
    loaded = import_module(f"headwater.protocol.records.{module}")
    return getattr(loaded, f"{name}Key"), getattr(loaded, f"{name}Value")
