"""UpdateFeatures, UnregisterBroker and AllocateProducerIds."""

from __future__ import annotations

import pytest

from headwater.broker.controller_handlers import (
    allocate_producer_ids,
    unregister_broker,
    update_features,
)
from headwater.controller.features import UpgradeType
from headwater.errors import ErrorCode
from headwater.metadata.features import KRAFT_VERSION
from headwater.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from headwater.protocol.messages.unregister_broker import UnregisterBrokerRequest
from headwater.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.handlers import HandlerBench

TRANSACTIONS = "transaction.version"


def test_version_zero_says_downgrade_in_its_own_way() -> None:
    bench = HandlerBench()
    refused = FeatureUpdateKey(feature=TRANSACTIONS, max_version_level=1)
    answer = bench.ask(update_features, UpdateFeaturesRequest(feature_updates=[refused]), 0)
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    allowed = FeatureUpdateKey(feature=TRANSACTIONS, max_version_level=1, allow_downgrade=True)
    answer = bench.ask(update_features, UpdateFeaturesRequest(feature_updates=[allowed]), 0)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert [(r.feature, r.error_code) for r in answer.results] == [(TRANSACTIONS, 0)]
    assert bench.image.features[TRANSACTIONS] == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_s_own_version_can_stay_as_it_is(version: int) -> None:
    bench = HandlerBench()

    def code(level: int) -> int:
        key = FeatureUpdateKey(feature=KRAFT_VERSION, max_version_level=level)
        request = UpdateFeaturesRequest(feature_updates=[key])
        answered: int = bench.ask(update_features, request, version).error_code
        return answered

    assert code(1) == 0
    assert code(0) == ErrorCode.INVALID_UPDATE_VERSION
    assert code(2) == ErrorCode.INVALID_UPDATE_VERSION


def test_features_that_are_only_validated_stay() -> None:
    bench = HandlerBench()
    key = FeatureUpdateKey(
        feature=TRANSACTIONS, max_version_level=1, upgrade_type=UpgradeType.SAFE_DOWNGRADE
    )
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=True)
    assert bench.ask(update_features, request, 2).error_code == 0
    assert bench.image.features[TRANSACTIONS] == 2


def test_a_broker_that_nobody_knows_cannot_be_unregistered() -> None:
    bench = HandlerBench()
    bench.cluster.join(2)
    assert bench.ask(unregister_broker, UnregisterBrokerRequest(broker_id=2), 0).error_code == 0
    assert set(bench.image.brokers) == {1}
    answer = bench.ask(unregister_broker, UnregisterBrokerRequest(broker_id=2), 0)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert answer.error_message


def test_blocks_of_producer_ids_follow_each_other_and_are_for_brokers_only() -> None:
    bench = HandlerBench()
    epoch = bench.image.brokers[1].epoch
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    blocks = [bench.ask(allocate_producer_ids, request, 0) for _ in range(2)]
    assert [(b.producer_id_start, b.producer_id_len) for b in blocks] == [(0, 1000), (1000, 1000)]
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch + 1)
    answer = bench.ask(allocate_producer_ids, stale, 0)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
