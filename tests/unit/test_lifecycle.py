"""A broker's registration, heartbeats and controlled shutdown, against a controller by script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.broker.lifecycle import Lifecycle
from headwater.broker.metadata_log import QuorumLeader
from headwater.config import node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io import Address
from headwater.observability import Log
from headwater.protocol import Message
from headwater.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from headwater.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from headwater.testing.sim.world import World

DIRECTORY = SimpleNamespace(
    id=b"d" * 16,
    path="/d",
    was_clean=True,
    broker_epoch_at_stop=7,
    health=SimpleNamespace(is_online=True),
)
UNFENCED = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
FENCED = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)


def timed_out() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, "nobody there")


class Stage:
    """A broker whose controller answers as the test tells: `answers` is called with each request
    and returns a response or raises."""

    def __init__(
        self,
        answers: Callable[[Message], Message],
        settings: dict[str, str] | None = None,
    ) -> None:
        self.world = World(1)
        self.answers = answers
        self.asked: list[Message] = []
        self.times: list[float] = []
        self.lines: list[str] = []
        host = self.world.machine("node").boot()
        config = node_config(
            {"log.dirs": "/d", "node.id": "2", "listeners": "PLAINTEXT://:9092"} | (settings or {})
        )
        self.brokers: dict[int, Any] = {}
        metadata: Any = SimpleNamespace(
            applied=42,
            leader=QuorumLeader(1, 1, Address("10.0.0.9", 9093)),
            image=SimpleNamespace(
                brokers=self.brokers, features={"metadata.version": 30}, metadata_version=30
            ),
        )
        log_dirs: Any = SimpleNamespace(
            directories=[DIRECTORY], offline=list, is_cordoned=lambda directory: True
        )
        channel: Any = SimpleNamespace(ask=self._ask)
        self.lifecycle: Lifecycle
        self._make: Callable[[], Lifecycle] = lambda: Lifecycle(
            config,
            channel,
            metadata,
            log_dirs,
            host,
            Log(host.clock, self.lines.append),
            cluster_id="the-cluster",
        )

    async def _ask(self, request: Message, *, timeout_ms: int) -> Message:
        self.asked.append(request)
        self.times.append(self.world.loop.time())
        try:
            answer = self.answers(request)
        except ApiError:
            await asyncio.sleep(timeout_ms / 1000)
            raise
        await asyncio.sleep(0.001)
        if isinstance(answer, BrokerRegistrationResponse) and not answer.error_code:
            self.brokers[2] = SimpleNamespace(
                epoch=answer.broker_epoch, fenced=True, log_dirs=[DIRECTORY.id]
            )
        if isinstance(answer, BrokerHeartbeatResponse) and not answer.is_fenced:
            self.brokers[2].fenced = False
        return answer

    def run(self, story: Callable[[Lifecycle], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            self.lifecycle = self._make()
            await story(self.lifecycle)

        self.world.run(main())

    def register(self) -> None:
        self.run(lambda lifecycle: lifecycle.register({"PLAINTEXT": Address("0.0.0.0", 9092)}))

    def said(self, words: str) -> int:
        return sum(words in line for line in self.lines)


def script(*answers: Message | ApiError) -> Callable[[Message], Message]:
    """Gives these answers in order, the last one again and again."""
    left = list(answers)

    def answer(request: Message) -> Message:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, ApiError):
            raise found
        return found

    return answer


def registered(epoch: int = 5) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(broker_epoch=epoch)


def refused(code: ErrorCode) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=code)


def test_a_broker_registers_where_others_reach_it_and_waits_until_it_is_unfenced() -> None:
    stage = Stage(script(registered(), FENCED, FENCED, UNFENCED))
    stage.register()
    assert stage.lifecycle.broker_epoch == 5
    request, *heartbeats = stage.asked
    assert isinstance(request, BrokerRegistrationRequest)
    ((name, host, port),) = ((at.name, at.host, at.port) for at in request.listeners)
    assert (name, port) == ("PLAINTEXT", 9092)
    assert host not in ("", "0.0.0.0", "localhost")
    assert (request.cluster_id, request.previous_broker_epoch) == ("the-cluster", 7)
    assert len(heartbeats) == 3
    for each in heartbeats:
        assert isinstance(each, BrokerHeartbeatRequest)
        assert each.cordoned_log_dirs == [DIRECTORY.id]
    assert stage.lines == []  # it took no time worth a line


def test_another_broker_of_the_same_id_is_waited_for_and_named() -> None:
    duplicate = refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    stage = Stage(script(*[duplicate] * 20, registered(), UNFENCED))
    stage.register()
    lives = {r.incarnation_id for r in stage.asked if isinstance(r, BrokerRegistrationRequest)}
    assert len(lives) == 1
    assert stage.said("node.id") == 1


def test_a_registration_that_takes_too_long_ends_the_start() -> None:
    stage = Stage(script(refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION)))
    with pytest.raises(ApiError) as failed:
        stage.register()
    assert "initial.broker.registration.timeout.ms" in str(failed.value)
    assert "live broker 2" in str(failed.value)
    assert 59 < stage.times[-1] - stage.times[0] < 61
    assert 5 <= stage.said("not ready yet") <= 8


def test_an_unreachable_quorum_is_reported_while_the_broker_waits() -> None:
    stage = Stage(script(timed_out()), {"initial.broker.registration.timeout.ms": "35000"})
    with pytest.raises(ApiError) as failed:
        stage.register()
    assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert stage.said("nobody there") == 3


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, ("the-cluster", "controller 1", "controller.quorum")),
        (ErrorCode.UNSUPPORTED_VERSION, ("metadata.version 30", "upgrade")),
        (ErrorCode.INVALID_REGISTRATION, ("/d", "directory.id", "format")),
    ],
)
def test_what_waiting_cannot_change_ends_the_start_at_once(
    code: ErrorCode, words: tuple[str, ...]
) -> None:
    stage = Stage(script(refused(code)))
    with pytest.raises(ApiError) as failed:
        stage.register()
    assert failed.value.code is code
    assert len(stage.asked) == 1
    assert all(word in str(failed.value) for word in ("broker 2", *words))


async def _beats(lifecycle: Lifecycle, seconds: float) -> None:
    task = asyncio.ensure_future(lifecycle.run())
    await asyncio.sleep(seconds)
    task.cancel()


def test_heartbeats_come_at_their_interval_and_at_once_where_one_got_lost() -> None:
    stage = Stage(script(UNFENCED, UNFENCED, timed_out(), timed_out(), UNFENCED))
    stage.brokers[2] = SimpleNamespace(epoch=5, fenced=False)
    stage.run(lambda lifecycle: _beats(lifecycle, 20))
    gaps = [round(b - a, 1) for a, b in zip(stage.times, stage.times[1:], strict=False)]
    # Two seconds between heartbeats; half a session until one counts as lost.
    assert gaps[:5] == [2.0, 2.0, 4.5, 4.5, 2.0]
    assert stage.said("not answered") == 1
    assert stage.said("answered again") == 1


def test_fencing_is_said_once_each_way() -> None:
    stage = Stage(script(UNFENCED, FENCED, FENCED, UNFENCED))
    stage.brokers[2] = SimpleNamespace(epoch=5, fenced=False)
    stage.run(lambda lifecycle: _beats(lifecycle, 20))
    assert stage.said("has fenced") == 1
    assert stage.said("has unfenced") == 2  # the first heartbeat of this test, too


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_broker_that_was_forgotten_registers_again(code: ErrorCode) -> None:
    stale = BrokerHeartbeatResponse(error_code=code)
    stage = Stage(script(registered(5), UNFENCED, stale, registered(9), FENCED, UNFENCED))

    async def story(lifecycle: Lifecycle) -> None:
        await lifecycle.register({"PLAINTEXT": Address("0.0.0.0", 9092)})
        await _beats(lifecycle, 5)

    stage.run(story)
    assert stage.lifecycle.broker_epoch == 9
    first, second = (r for r in stage.asked if isinstance(r, BrokerRegistrationRequest))
    assert first.incarnation_id == second.incarnation_id
    assert second.previous_broker_epoch == 5
    last = stage.asked[-1]
    assert isinstance(last, BrokerHeartbeatRequest)
    assert last.broker_epoch == 9


def test_a_broker_waits_until_it_may_go() -> None:
    done = BrokerHeartbeatResponse(is_fenced=True, should_shut_down=True)
    stage = Stage(script(*[FENCED] * 10, done))
    stage.run(lambda lifecycle: lifecycle.shut_down())
    assert len(stage.asked) == 11
    assert all(isinstance(r, BrokerHeartbeatRequest) and r.want_shut_down for r in stage.asked)
    assert stage.times[-1] - stage.times[0] > 1  # with pauses
    assert stage.lines == []


def test_a_broker_does_not_wait_for_ever_for_a_quorum_that_is_gone() -> None:
    stage = Stage(script(timed_out()))
    stage.run(lambda lifecycle: lifecycle.shut_down())
    assert stage.world.loop.time() - stage.times[0] < 6
    assert stage.said("stopping anyway") == 1


def test_controlled_shutdown_can_be_switched_off() -> None:
    stage = Stage(script(UNFENCED), {"controlled.shutdown.enable": "false"})
    stage.run(lambda lifecycle: lifecycle.shut_down())
    assert stage.asked == []


def test_a_broker_that_left_sends_no_more_heartbeats() -> None:
    done = BrokerHeartbeatResponse(is_fenced=True, should_shut_down=True)
    stage = Stage(script(done))

    async def story(lifecycle: Lifecycle) -> None:
        task = asyncio.ensure_future(lifecycle.run())
        await asyncio.sleep(0.5)
        await lifecycle.shut_down()
        await lifecycle.shut_down()
        await asyncio.sleep(10)
        assert task.done()

    stage.run(story)
    assert len(stage.asked) == 1


def test_a_broker_registers_its_directories_once_the_level_knows_them() -> None:
    stage = Stage(script(registered(), UNFENCED, UNFENCED, registered(), UNFENCED))

    async def story(lifecycle: Lifecycle) -> None:
        await lifecycle.register({"PLAINTEXT": Address("0.0.0.0", 9092)})
        stage.brokers[2].log_dirs = []  # as it was registered below the level
        running = asyncio.ensure_future(lifecycle.run())
        await asyncio.sleep(20)  # of virtual time
        running.cancel()

    stage.run(story)
    first, *_, again, heartbeat, _ = stage.asked[:6]
    assert isinstance(first, BrokerRegistrationRequest)
    assert isinstance(again, BrokerRegistrationRequest)
    assert isinstance(heartbeat, BrokerHeartbeatRequest)
    assert again.incarnation_id == first.incarnation_id
    assert heartbeat.broker_epoch == 5
    assert stage.said("registered the directories") == 1
