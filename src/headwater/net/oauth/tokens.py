"""The bearer token of a client or a node: fetched for the first connection, and again before it
expires."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from headwater.io import Host, environment_list
from headwater.io.tls import read_file
from headwater.net.oauth.http import HttpFailed, endpoint_context, send
from headwater.net.peer.errors import AuthenticationFailed
from headwater.security.oauth import (
    ASSERTION,
    FILE,
    FILES_VARIABLE,
    URLS_VARIABLE,
    OAuthFailed,
    OAuthRefused,
    OAuthSettings,
    lifetime_of,
    oauth_settings,
    refresh_at,
    shown,
    signed_assertion,
    token_in,
    token_request,
)
from headwater.security.stores import NEEDS_EXTRA


class TokenKeeper:
    """Returns the token that is current. Connections that need one at the same time wait for one
    request, and none waits while the last token is valid: it is refreshed in the background, and
    again if that fails."""

    def __init__(self, settings: OAuthSettings, context: ssl.SSLContext | None = None) -> None:
        """`context` is for the token endpoint."""
        self._settings = settings
        self._context = context
        self._token = ""
        self._refresh_at = 0.0  # wall clock, in seconds
        self._expires_at = 0.0
        self._refreshing: asyncio.Task[None] | None = None

    async def __call__(self, host: Host) -> str:
        """Raises AuthenticationFailed."""
        now = host.clock.wall_ms() / 1000
        if now < self._refresh_at:
            return self._token
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(host))
            self._refreshing.add_done_callback(_note_failure)
        if not self._is_valid(now):
            # A caller with a short timeout must not end the request that others wait for.
            try:
                await asyncio.shield(self._refreshing)
            except AuthenticationFailed as error:  # a copy: all callers get this error
                raise AuthenticationFailed(str(error)) from None
        return self._token

    def _is_valid(self, now: float) -> bool:
        return now < self._expires_at - 1

    async def _refresh(self, host: Host) -> None:
        try:
            token = (await self._fetch(host)).strip()
            lifetime = lifetime_of(token)
            now = host.clock.wall_ms() / 1000
            if lifetime.expires <= now:
                raise OAuthRefused("the token has expired")
        except (OAuthRefused, OAuthFailed) as error:
            now = host.clock.wall_ms() / 1000
            if self._is_valid(now):
                self._refresh_at = now + self._settings.retry_max_ms / 1000
                return
            raise AuthenticationFailed(
                f"no token from {shown(self._settings.url)}: {error}"
            ) from None
        self._token, self._expires_at = token, lifetime.expires
        self._refresh_at = refresh_at(self._settings, lifetime, now, host.random)

    async def _fetch(self, host: Host) -> str:
        settings = self._settings
        if settings.way == FILE:
            return (await self._read(host, settings.path)).decode(errors="replace")
        clock = host.clock.monotonic
        deadline = clock() + settings.retry_max_ms / 1000
        backoff = settings.retry_ms / 1000
        while True:
            try:
                return await self._ask(host)
            except (OAuthFailed, HttpFailed) as error:
                if clock() + backoff >= deadline:
                    raise OAuthFailed(str(error)) from None
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, settings.retry_max_ms / 1000)

    async def _ask(self, host: Host) -> str:
        settings = self._settings
        assertion = await self._assertion(host) if settings.way == ASSERTION else None
        request = token_request(settings, assertion)
        response = await send(
            host,
            settings.url,
            body=request.body,
            headers=request.headers,
            context=self._context,
            connect_timeout_ms=settings.connect_timeout_ms,
            read_timeout_ms=settings.read_timeout_ms,
        )
        return token_in(response.status, response.body)

    async def _assertion(self, host: Host) -> str:
        made = self._settings.assertion
        if made.file is not None:
            return (await self._read(host, made.file)).decode(errors="replace").strip()
        assert made.key_file is not None
        key = await self._read(host, made.key_file)
        template = None
        if made.template_file is not None:
            template = await self._read(host, made.template_file)
        try:
            return signed_assertion(
                made, key, template, host.clock.wall_ms() / 1000, host.random_id().hex()
            )
        except ImportError:
            raise OAuthRefused(
                f"sasl.oauthbearer.assertion.private.key.file {NEEDS_EXTRA}"
            ) from None

    async def _read(self, host: Host, path: str) -> bytes:
        try:
            return await host.workers.run(lambda: read_file(path))
        except OSError as error:
            reason = error.strerror or str(error)
            raise OAuthFailed(f"{path}: {reason.lower()}") from None


def _note_failure(refreshing: asyncio.Task[None]) -> None:
    """Marks an error as seen: perhaps no login waited for it, and the next one raises it again."""
    if not refreshing.cancelled():
        refreshing.exception()


def token_keeper(get: Callable[[str], Any], options: Mapping[str, str]) -> TokenKeeper:
    """Returns the keeper for these settings: `get` returns one by Kafka's name, `options` are those
    of `sasl.jaas.config`, which also say which certificates the token endpoint must have. Raises
    OAuthRefused."""
    settings = oauth_settings(
        get,
        options,
        allowed_urls=environment_list(URLS_VARIABLE),
        allowed_files=environment_list(FILES_VARIABLE),
    )
    return TokenKeeper(settings, endpoint_context(settings.url, options))
