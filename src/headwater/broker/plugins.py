"""Classes that the settings name: Kafka's own, and Python classes of the user's own.

`python:MODULE.CLASS` names a class that Python can import. Only the node's own settings may name
one, never a request, and a class that cannot be imported ends the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.config import ConfigError, NodeConfig
from headwater.config.catalog import broker_definition
from headwater.config.support import PYTHON_PREFIX, STANDARD_AUTHORIZER
from headwater.controller.policies import Policies, PolicyRefused
from headwater.errors import ApiError
from headwater.security.acls import AclResource, parse_super_users
from headwater.security.authorizer import Authorizer, StandardAuthorizer
from headwater.security.operations import Operation
from headwater.security.principal import Principal
from headwater.security.tokens import parse_principal

if TYPE_CHECKING:
    from headwater.protocol.records.metadata_security import AccessControlEntryRecord

_SUPER_USERS = "super.users"
_PRINCIPAL_BUILDER = "principal.builder.class"
_ALLOW_IF_NO_RULE = "allow.everyone.if.no.acl.found"

Failed = Callable[[str, BaseException], None]


def build_authorizer(config: NodeConfig, on_failure: Failed) -> Authorizer | None:
    """Returns the authorizer that the settings name, None without one; raises ConfigError if it
    cannot be loaded."""
    name = config.authorizer_class_name
    if not name:
        return None
    if name == STANDARD_AUTHORIZER:
        return StandardAuthorizer(
            _super_users(config), allow_if_no_rule_is_found=_allow_if_no_rule(config)
        )
    made = python_object("authorizer.class.name", name, ["allows"], config.properties)
    return PythonAuthorizer(made, on_failure)


def _super_users(config: NodeConfig) -> frozenset[str]:
    text = config.properties.get(_SUPER_USERS, "")
    try:
        return parse_super_users(text)
    except ApiError as refusal:
        raise ConfigError(_SUPER_USERS, text, str(refusal.message)) from None


def _allow_if_no_rule(config: NodeConfig) -> bool:
    text = config.properties.get(_ALLOW_IF_NO_RULE, "false").strip()
    if text.lower() not in ("true", "false"):
        raise ConfigError(_ALLOW_IF_NO_RULE, text, "expected true or false")
    return text.lower() == "true"


def python_object(key: str, text: str, methods: Iterable[str], settings: Mapping[str, str]) -> Any:
    """Returns an instance of the class that a setting names. Its `configure`, if it has one, gets
    the node's settings."""
    path = text.removeprefix(PYTHON_PREFIX)
    module_name, _, class_name = path.rpartition(".")
    if not text.startswith(PYTHON_PREFIX) or not module_name:
        raise ConfigError(key, text, f"expected {PYTHON_PREFIX}MODULE.CLASS")
    try:
        made = getattr(import_module(module_name), class_name)()
        if hasattr(made, "configure"):
            made.configure(dict(settings))
    except Exception as error:  # of the user's own code: whatever it is, the node must not start
        raise ConfigError(
            key, text, f"a class that can be made; {type(error).__name__}: {error}"
        ) from error
    missing = [name for name in methods if not callable(getattr(made, name, None))]
    if missing:
        raise ConfigError(key, text, f"a class with the method {missing[0]}")
    return made


def build_policies(config: NodeConfig, on_failure: Failed) -> Policies:
    """Returns the policies that the settings name; raises ConfigError if one cannot be loaded."""
    new_topic = _policy(config, "create.topic.policy.class.name", on_failure)
    alteration = _policy(config, "alter.config.policy.class.name", on_failure)
    return Policies(new_topic, alteration)


def _policy(config: NodeConfig, key: str, on_failure: Failed) -> Callable[..., None] | None:
    """Returns the `validate` of a policy. It refuses by ValueError, whose text the client gets."""
    name = config.value(key)
    if not name:
        return None
    validate = python_object(key, str(name), ["validate"], config.properties).validate

    def asked(*question: object) -> None:
        try:
            validate(*question)
        except ValueError as refusal:
            raise PolicyRefused(str(refusal)) from None
        except Exception as error:
            on_failure(f"the policy of {key} failed, and the request was refused", error)
            raise PolicyRefused("the policy failed") from None

    return asked


class PythonAuthorizer:
    """Asks an object of the user's own. What fails is not allowed."""

    keeps_rules = False
    generation = None  # it may go by the clock, or by anything else

    def __init__(self, made: Any, on_failure: Failed) -> None:
        self._made = made
        self._on_failure = on_failure

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: AclResource,
        name: str,
    ) -> bool:
        try:
            return self._made.allows(principal, host, operation, resource, name) is True
        except Exception as error:
            self._on_failure("the authorizer failed, and the request was denied", error)
            return False

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, resource: AclResource
    ) -> bool:
        """Asks for a right on any resource; an object that cannot tell allows none."""
        ask = getattr(self._made, "allows_any", None)
        try:
            return ask is not None and ask(principal, host, operation, resource) is True
        except Exception as error:
            self._on_failure("the authorizer failed, and the request was denied", error)
            return False

    def follow(
        self, rules: Mapping[bytes, AccessControlEntryRecord], changed: Iterable[bytes]
    ) -> None:
        """Goes by no rules of the metadata."""


class Peer(NamedTuple):
    """An authenticated connection, as a principal builder sees it."""

    listener: str
    protocol: str
    host: str
    user: str  # of the login, or by `ssl.principal.mapping.rules`; ANONYMOUS without either
    mechanism: str | None = None  # of SASL
    subject: str | None = None  # of the certificate, where that is what authenticates


class NoPrincipal(Exception):
    """The principal builder does not let a connection in; the text is for the log."""


Build = Callable[[Peer], Principal]


class PrincipalBuilders:
    """The principal builders of a node's listeners. Only the node's own file names them."""

    def __init__(self, config: NodeConfig, on_failure: Failed) -> None:
        """Raises ConfigError for a class that cannot be loaded."""
        self._on_failure = on_failure
        self._made: dict[str, Any] = {}  # by the key that names it
        for key, text in config.properties.items():
            definition = broker_definition(key)
            if definition is None or definition.name != _PRINCIPAL_BUILDER:
                continue
            if text.startswith(PYTHON_PREFIX):
                self._made[key] = python_object(key, text, ["build"], config.properties)
            else:
                self._made[key] = None  # Kafka's own, instead of that of all listeners

    def __bool__(self) -> bool:
        return any(made is not None for made in self._made.values())

    def of(self, listener: str) -> Build | None:
        """Returns the builder of a listener, None where principals are as in Kafka."""
        key = f"listener.name.{listener.lower()}.{_PRINCIPAL_BUILDER}"
        made = self._made.get(key if key in self._made else _PRINCIPAL_BUILDER)
        if made is None:
            return None

        def build(peer: Peer) -> Principal:
            """Raises NoPrincipal."""
            try:
                text = made.build(peer)
            except ValueError as refusal:
                raise NoPrincipal(str(refusal)) from None
            except Exception as error:
                self._on_failure("the principal builder failed, and a client was refused", error)
                raise NoPrincipal("the principal builder failed") from None
            if not isinstance(text, str) or not all(parse_principal(text)[:2]):
                raise NoPrincipal(f"the principal builder returned {text!r}, expected TYPE:NAME")
            return parse_principal(text)

        return build
