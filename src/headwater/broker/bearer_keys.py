"""Bearer tokens on the listeners of a node: what `sasl.oauthbearer.*` says, and the keys for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headwater.config import ConfigError, NodeConfig
from headwater.io import Host, environment_list
from headwater.net.oauth.http import endpoint_context
from headwater.net.oauth.keys import JwksKeeper, JwksSettings
from headwater.observability import Log
from headwater.security.bearer import BearerValidator, TokenRules
from headwater.security.oauth import URLS_VARIABLE, OAuthRefused, check_url, shown
from headwater.security.stores import NEEDS_EXTRA

_MECHANISM = "OAUTHBEARER"
_URL = "sasl.oauthbearer.jwks.endpoint.url"
_WAIT_SECONDS = 10.0  # at the start, for keys that an address is slow to give


class BearerKeys:
    """One keeper for each address that a listener names, while `run` runs."""

    def __init__(self, host: Host, lines: Log) -> None:
        self._host = host
        self._lines = lines
        self._keepers: dict[JwksSettings, JwksKeeper] = {}
        self._running: set[JwksSettings] = set()
        self._added = asyncio.Event()

    def validator(
        self, config: NodeConfig, listener: str, options: Mapping[str, str]
    ) -> BearerValidator:
        """Returns what validates the tokens of one listener. `options` are those of its
        `sasl.jaas.config`. Raises ConfigError."""

        def number(key: str) -> int:
            value = config.listener_value(listener, key, _MECHANISM)
            assert isinstance(value, int)
            return value

        def text(key: str) -> str:
            return str(config.listener_value(listener, key, _MECHANISM) or "")

        url = text(_URL)
        if not url:
            raise ConfigError(
                _URL,
                url,
                f"expected where the keys are that check the tokens of listener {listener}: an "
                "address with https, or a file; unsigned tokens are not accepted",
            )
        try:
            import cryptography  # noqa: F401 - an extra: its absence is found at the start
        except ImportError:
            raise ConfigError("sasl.enabled.mechanisms", _MECHANISM, NEEDS_EXTRA) from None
        settings = JwksSettings(
            url,
            number("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        )
        try:
            check_url(_URL, url, environment_list(URLS_VARIABLE))
            keeper = self._keepers.get(settings)
            if keeper is None:
                context = endpoint_context(url, options)
                keeper = JwksKeeper(self._host, settings, self._lines, context)
                self._keepers[settings] = keeper
                self._added.set()
        except OAuthRefused as error:
            reason = str(error).removeprefix(f"{_URL}={shown(url)} ")
            raise ConfigError(_URL, shown(url), reason) from None
        audiences = config.listener_value(
            listener, "sasl.oauthbearer.expected.audience", _MECHANISM
        )
        rules = TokenRules(
            audiences if isinstance(audiences, tuple) else (),
            text("sasl.oauthbearer.expected.issuer") or None,
            number("sasl.oauthbearer.clock.skew.seconds"),
            text("sasl.oauthbearer.sub.claim.name"),
            text("sasl.oauthbearer.scope.claim.name"),
        )
        return BearerValidator(rules, keeper.keys, self._host.clock.wall_ms, keeper.want)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._added.clear()
                for settings, keeper in self._keepers.items():
                    if settings not in self._running:
                        self._running.add(settings)
                        group.create_task(keeper.run())
                await self._added.wait()

    async def loaded(self) -> None:
        """Waits until all keys have been read, but not forever: a client that comes too early is
        refused, and some do not try again."""
        waits = [keeper.loaded.wait() for keeper in self._keepers.values()]
        if waits:
            await asyncio.wait(map(asyncio.ensure_future, waits), timeout=_WAIT_SECONDS)
