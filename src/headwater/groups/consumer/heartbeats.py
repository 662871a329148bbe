"""ConsumerGroupHeartbeat: how a member joins, stays in and leaves a consumer group.

A member says only what is new with it, and is told only what is new for it. Nearly all heartbeats
of a group's life say nothing and change nothing; they are answered first and at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import ApiError, ErrorCode
from headwater.groups.consumer import answers
from headwater.groups.consumer.assignors import Partitions
from headwater.groups.consumer.member import LEFT, LEFT_FOR_A_WHILE, Member
from headwater.groups.consumer.records import progress_record
from headwater.groups.decision import ClientInfo, Decision, Record, Token, reply
from headwater.groups.modern import Describable
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from headwater.groups.consumer.group import ConsumerGroup


def heartbeat(
    group: ConsumerGroup,
    token: Token,
    request: ConsumerGroupHeartbeatRequest,
    client: ClientInfo,
    version: int,
    now: float,
    now_ms: int,
    describable: Describable | None,
) -> Decision:
    state = group.state
    member = state.members.get(request.member_id)
    if (
        member is not None
        and member.epoch == request.member_epoch
        and now < group.look_again
        and member.is_reconciled_to(state.epoch)
        and state.epoch == state.target_epoch
        and _says_nothing(member, request, client)
    ):
        if state.regexes:
            group.regexes.ask(state.regexes, group.settings, now_ms, describable)
        group.deadlines.renew_session(member.id, now + group.session_timeout)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=group.heartbeat_interval_ms,
        )
        return Decision((), ((token, answer),))
    try:
        answers.check_heartbeat(request, group.settings.consumer_assignors, version=version)
        if request.member_epoch in (LEFT, LEFT_FOR_A_WHILE):
            return _leave(group, token, request, now_ms)
        return _join_or_stay(group, token, request, client, now, now_ms, describable)
    except ApiError as refusal:
        return reply(token, answers.heartbeat_refused(refusal))


def _says_nothing(
    member: Member, request: ConsumerGroupHeartbeatRequest, client: ClientInfo
) -> bool:
    return (
        request.subscribed_topic_names is None
        and request.topic_partitions is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms in (-1, member.rebalance_timeout_ms)
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and request.rack_id is None
        and request.server_assignor is None
        and client.client_id == member.client_id
        and client.host == member.client_host
        and member.classic is None
    )


def _join_or_stay(
    group: ConsumerGroup,
    token: Token,
    request: ConsumerGroupHeartbeatRequest,
    client: ClientInfo,
    now: float,
    now_ms: int,
    describable: Describable | None,
) -> Decision:
    records: list[Record] = []
    owned = answers.owned_partitions(request.topic_partitions)
    group.check_size(request.member_id)
    member = _member(group, request, owned, records)
    updated = _updated(member, request, client)
    changed = group.note_member(member, updated, records)
    regex = group.regexes.changed(member, updated, records)
    group.regexes.ask(
        group.state.regexes_after(member, updated),
        group.settings,
        now_ms,
        describable,
        must=regex.must_resolve,
    )
    epoch, homogeneous = group.note_topics(
        member, updated, records, now, changed=changed or regex.is_resolved
    )
    target_epoch, target = group.target_for(
        member, updated, records, now_ms, epoch=epoch, homogeneous=homogeneous
    )
    moved = group.reconcile(
        updated,
        records,
        now,
        target_epoch=target_epoch,
        target=target,
        owned=owned,
        subscription_changed=changed or regex.is_changed,
    )
    group.deadlines.renew_session(moved.id, now + group.session_timeout)
    shows = request.member_epoch == 0 or _is_full(request) or moved.assigned != member.assigned
    answer = ConsumerGroupHeartbeatResponse(
        member_id=moved.id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=group.heartbeat_interval_ms,
        assignment=answers.assignment(moved.assigned) if shows else None,
    )
    return Decision(records, ((token, answer),))


def _member(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    owned: Partitions | None,
    records: list[Record],
) -> Member:
    """Who it is that asks; a new member if it joins."""
    member_id = request.member_id or group.new_member_id()
    joins = request.member_epoch == 0
    if request.instance_id is None:
        member = group.known_member(member_id, create=joins)
    else:
        member = group.static_member(
            member_id, request.instance_id, records, create=joins, speaks_classic=False
        )
    _check_epoch(member, request.member_epoch, owned)
    return member


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """It says everything, as after an answer that was lost: so it is told everything."""
    subscribes = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return (
        request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    )


def _leave(
    group: ConsumerGroup, token: Token, request: ConsumerGroupHeartbeatRequest, now_ms: int
) -> Decision:
    if request.instance_id is None:
        member = group.known_member(request.member_id, create=False)
    else:
        member = group.holder(request.member_id, request.instance_id)
        if request.member_epoch == LEFT_FOR_A_WHILE:
            return _leave_for_a_while(group, token, member)
    answer = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    return group.remove([member], now_ms, ((token, answer),))


def _leave_for_a_while(group: ConsumerGroup, token: Token, member: Member) -> Decision:
    """A static member goes and means to be back: its partitions wait for its session to end."""
    gone = replace(
        member,
        epoch=LEFT_FOR_A_WHILE,
        revoking={},
        # Epochs of before mean nothing to whoever comes back.
        assigned={topic: dict.fromkeys(held, 0) for topic, held in member.assigned.items()},
    )
    answer = ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=LEFT_FOR_A_WHILE)
    return Decision((progress_record(group.id, gone),), ((token, answer),))


def _check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """The member's own epoch; or the one before, if the answer that raised it may be lost."""
    if epoch in (0, member.epoch):
        return
    if (
        epoch == member.previous_epoch
        and epoch < member.epoch
        and owned is not None
        and all(
            partitions <= member.assigned.get(topic, {}).keys()
            for topic, partitions in owned.items()
        )
    ):
        return
    word = "greater" if epoch > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, client: ClientInfo) -> Member:
    """What is null in a request has not changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.host,
        classic=None,
    )
