"""A small server of tokens and keys on loopback, as an identity provider has one."""

from __future__ import annotations

import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

from tests.support.jwts import jwk, jwks, signed


class TokenServer:
    """POST /token gives a token of the RSA key in `tests.support.jwts`, GET /jwks that key.

    `answers` are sent first, as pairs of status and body; each request is kept in `requests`. While
    `is_up` is not set, requests hang.
    """

    def __init__(self, certificate: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.answers: list[tuple[int, bytes]] = []
        self.keys = jwks(jwk())
        self.claims: dict[str, Any] = {"sub": "alice", "aud": "kafka", "iss": "https://issuer"}
        self.lifetime_seconds = 3600.0
        self.last_expiry = 0.0  # of the tokens that were granted
        self.chunked = False
        self.is_up = threading.Event()
        self.is_up.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append((self.path, dict(self.headers), {}))
                self._answer(*outer._next(lambda: outer.keys))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                fields = {name: values[0] for name, values in parse_qs(body).items()}
                outer.requests.append((self.path, dict(self.headers), fields))
                outer.is_up.wait()
                self._answer(*outer._next(outer.granted))

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                if outer.chunked:
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for start in range(0, len(body), 100):
                        piece = body[start : start + 100]
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.write(b"0\r\n\r\n")
                    return
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "http"
        if certificate is not None:
            self._scheme = "https"
            self._server.socket = certificate.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def _next(self, otherwise: Any) -> tuple[int, bytes]:
        return self.answers.pop(0) if self.answers else (200, otherwise())

    def granted(self) -> bytes:
        now = time.time()
        self.last_expiry = now + self.lifetime_seconds
        claims = self.claims | {"iat": now, "exp": self.last_expiry}
        return json.dumps({"access_token": signed("RS256", claims)}).encode()

    def url(self, path: str = "/token") -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_up.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
