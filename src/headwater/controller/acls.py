"""Access control rules: creation and deletion.

The rules and the filters of a request are independent: a refused one does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.controller.decision import Decision, check_bound
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.protocol import Message
from headwater.protocol.records.metadata_security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from headwater.security.acls import Rule, RuleFilter


def create_acls(state: ControllerState, rules: Sequence[Rule]) -> Decision[list[ApiError | None]]:
    """Creates the rules that do not exist yet; one that does is a success, too."""
    existing = {Rule.from_record(record) for record in state.image.acls.values()}
    results: list[ApiError | None] = []
    records: list[Message] = []
    for rule in rules:
        try:
            rule.check()
        except ApiError as refusal:
            results.append(refusal)
            continue
        results.append(None)
        if rule in existing:
            continue
        existing.add(rule)
        records.append(
            AccessControlEntryRecord(
                id=state.new_id(),
                resource_type=rule.resource,
                resource_name=rule.name,
                pattern_type=rule.pattern,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
        )
        check_bound(len(records))
    return Decision(records, results)


def delete_acls(
    state: ControllerState, filters: Sequence[RuleFilter]
) -> Decision[list[list[Rule] | ApiError]]:
    """Deletes what any of the filters matches; the reply has the rules of each."""
    rules = {rule_id: Rule.from_record(record) for rule_id, record in state.image.acls.items()}
    results: list[list[Rule] | ApiError] = []
    doomed: dict[bytes, None] = {}
    for wanted in filters:
        if wanted.has_unknown:
            results.append(
                ApiError(ErrorCode.INVALID_REQUEST, "the filter has an element that is not known")
            )
            continue
        found = {rule_id: rule for rule_id, rule in rules.items() if wanted.matches(rule)}
        doomed.update(dict.fromkeys(found))
        results.append(list(found.values()))
    return Decision([RemoveAccessControlEntryRecord(id=rule_id) for rule_id in doomed], results)
