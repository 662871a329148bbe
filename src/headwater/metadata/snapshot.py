"""Snapshots: an image as records in Kafka's order, and as the content of a checkpoint file.

A checkpoint is a control batch with a header (and the voters, if they are dynamic), data batches,
and a control batch with a footer. Offsets inside it count from 0 and have no meaning. A file
without a footer is incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.metadata.batches import (
    BATCH_BYTES_MAX,
    decode_batches,
    encode_batch,
    encode_control_batch,
)
from headwater.metadata.features import METADATA_VERSION
from headwater.model import OffsetAndEpoch
from headwater.protocol import DecodeError, Message
from headwater.protocol.records.metadata_nodes import FeatureLevelRecord
from headwater.protocol.records.metadata_topics import ConfigRecord, ProducerIdsRecord
from headwater.protocol.records.quorum import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

if TYPE_CHECKING:
    from headwater.metadata.image import Image

BOOTSTRAP_ID = OffsetAndEpoch(0, 0)

_FILE_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")
_RECORDS_PER_BATCH = 1000
# A thousand of the largest records, brokers with many listeners, stay far below the maximum.
assert _RECORDS_PER_BATCH * 8 * 1024 <= BATCH_BYTES_MAX


class Snapshot(NamedTuple):
    """The content of a checkpoint."""

    records: list[Message]
    timestamp: int  # of the last record it contains
    kraft_version: int = 0
    voters: VotersRecord | None = None


def file_name(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


def id_from_file_name(name: str) -> OffsetAndEpoch | None:
    found = _FILE_NAME.match(name)
    return OffsetAndEpoch(int(found[1]), int(found[2])) if found else None


def image_records(image: Image) -> Iterator[Message]:
    """Yields the records that create this image again."""
    yield from feature_records(image.features)
    for broker in image.brokers.values():
        yield broker.to_record()
    for controller in image.controllers.values():
        yield controller.to_record()
    for topic in image.topics.values():
        yield topic.to_record()
        for index, state in topic.partitions.items():
            yield state.to_record(topic.id, index, image.metadata_version)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
    if image.client_quotas:
        yield from _client_quota_records(image)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
    yield from image.acls.values()
    yield from image.scram.values()
    yield from image.tokens.values()


def feature_records(levels: dict[str, int]) -> Iterator[FeatureLevelRecord]:
    """Yields metadata.version first: the following records depend on it."""
    for name in sorted(levels, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=levels[name])


def _client_quota_records(image: Image) -> Iterator[Message]:
    from headwater.protocol.records.metadata_security import ClientQuotaRecord, EntityData

    for entity, quotas in image.client_quotas.items():
        for key, value in quotas.items():
            yield ClientQuotaRecord(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                key=key,
                value=value,
                remove=False,
            )


def encode_snapshot(
    records: Iterable[Message],
    *,
    metadata_version: int,
    epoch: int,
    timestamp: int,
    now_ms: int,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> bytes:
    """Encodes a checkpoint file. `timestamp` is that of the last record it contains."""
    header: list[Message] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp)
    ]
    if kraft_version:
        header.append(KRaftVersionRecord(version=0, kraft_version=kraft_version))
        if voters is not None:
            header.append(voters)
    parts = [encode_control_batch(header, now_ms=now_ms, epoch=epoch)]
    offset = len(header)
    for chunk in _chunks(list(records)):
        parts.append(
            encode_batch(
                chunk,
                metadata_version=metadata_version,
                now_ms=now_ms,
                base_offset=offset,
                epoch=epoch,
            )
        )
        offset += len(chunk)
    footer = [SnapshotFooterRecord(version=0)]
    parts.append(encode_control_batch(footer, now_ms=now_ms, base_offset=offset, epoch=epoch))
    return b"".join(parts)


def _chunks(records: Sequence[Message]) -> Iterator[Sequence[Message]]:
    for start in range(0, len(records), _RECORDS_PER_BATCH):
        yield records[start : start + _RECORDS_PER_BATCH]


def decode_snapshot(data: bytes) -> Snapshot:
    """Decodes a checkpoint; raises DecodeError if it is malformed or incomplete."""
    records: list[Message] = []
    timestamp = -1
    kraft_version = 0
    voters = None
    finished = False
    for batch in decode_batches(data):
        if not batch.is_control:
            records += batch.records
            continue
        for control in batch.records:
            match control:
                case SnapshotHeaderRecord():
                    timestamp = control.last_contained_log_timestamp
                case KRaftVersionRecord():
                    kraft_version = control.kraft_version
                case VotersRecord():
                    voters = control
                case SnapshotFooterRecord():
                    finished = True
    if not finished:
        raise DecodeError("snapshot without a footer")
    return Snapshot(records, timestamp, kraft_version, voters)
