"""What a request must be before anything reads it: addressed to this server, not sent by a page of another, and small.

A page in a browser can send requests to a server on the same machine. It cannot choose the headers ``Host``, ``Origin``
and ``Sec-Fetch-Site``, and without the permission of the server (CORS), which this one never gives, it can send no
JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES = 2**20
"""Of the body of a request."""
MOST_DISCARDED = 2**24
"""Bytes of a larger body that are read all the same: a client reads no answer before it has sent its request."""
RECEIPT = 8.0
"""Seconds in which the head of a request must have arrived, and then its body."""
HOST = re.compile(r"(?P<name>[a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
LOCAL = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Of every answer that does not say otherwise."""


class Guard:
    """Refuses requests to other hosts, from other pages, in other forms than JSON, too large or too slow, before
    ``app`` sees them. ``hosts``: names of this server, in small letters. ``pages``: paths that a link of another page
    may open, in a window of their own.
    """

    def __init__(self, app: App, *, hosts: Collection[str] = LOCAL, pages: Collection[str] = ()) -> None:
        self.app, self.hosts, self.pages = app, frozenset(hosts), frozenset(pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on with all of its body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = message.get("headers", ())
                extra = {name.encode(): value.encode() for name, value in HEADERS.items()}
                for name, _ in given:  # a page says itself what it may load
                    extra.pop(name, None)
                message = {**message, "headers": [*given, *extra.items()]}
            await send(message)

        if refusal := self._refusal(scope):
            await answer(with_headers, *refusal)
            return
        try:
            async with asyncio.timeout(RECEIPT):
                body = await _body(receive)
        except TimeoutError:
            await answer(with_headers, 408, f"the body did not arrive within {RECEIPT:g} seconds")
            return
        if body is None:
            return
        if len(body) > MOST_BYTES:
            await answer(with_headers, 413, f"the body is larger than {MOST_BYTES:,} bytes")
            return
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def whole() -> MutableMapping[str, Any]:
            return parts.pop() if parts else await receive()

        await self.app(scope, whole, with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the reason of a request that is refused by its headers."""
        found: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip().lower())
        hosts = found.get("host", [])
        host = HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if host is None or host["name"] not in self.hosts:
            return 421, "Host: not a name of this server (of ut serve, --allow-host NAME adds one)"
        own = f"{scope.get('scheme', 'http')}://{hosts[0]}"
        if any(origin != own for origin in found.get("origin", [])):
            return 403, "Origin: requests of pages of other servers are refused"
        opened = scope["method"] == "GET" and scope["path"] in self.pages
        opened = opened and found.get("sec-fetch-mode") == ["navigate"] and found.get("sec-fetch-dest") == ["document"]
        if not opened and any(site not in ("same-origin", "none") for site in found.get("sec-fetch-site", [])):
            return 403, "Sec-Fetch-Site: requests of pages of other servers are refused"
        if scope["method"] == "POST":
            kind = [value.partition(";")[0].strip() for value in found.get("content-type", [])]
            if kind != ["application/json"]:
                return 415, "Content-Type: expected application/json"
            lengths = found.get("content-length", [])
            if any(
                not length.isascii() or not length.isdigit() or int(length[:20]) > MOST_DISCARDED for length in lengths
            ):
                return 413, f"the body is larger than {MOST_BYTES:,} bytes"
        return None


async def _body(receive: Receive) -> bytes | None:
    """The body, or a part of more than `MOST_BYTES` of a larger one; None if the client has gone."""
    body, size = bytearray(), 0
    while size <= MOST_DISCARDED:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = message.get("body", b"")
        size += len(part)
        if len(body) <= MOST_BYTES:
            body += part
        if not message.get("more_body", False):
            break
    return bytes(body)


def error_body(status: int, message: str) -> dict[str, Any]:
    """An error as OpenAI's clients have it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


async def answer(send: Send, status: int, message: str) -> None:
    """Send an error and close the connection, of which more may be on its way."""
    body = json.dumps(error_body(status, message)).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


class PunctualProtocol(H11Protocol):
    """HTTP/1.1 on a connection that is closed if the head of a request takes longer than `RECEIPT`, for which uvicorn
    itself waits without end.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._late = self.loop.call_later(RECEIPT, self._close_if_late)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(RECEIPT, self._close_if_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP as the guard does, unless an answer has begun."""
        if self.cycle is None or not self.cycle.response_started:
            body = json.dumps(error_body(400, msg)).encode()
            fields = {"content-type": "application/json", "content-length": len(body), "connection": "close", **HEADERS}
            lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            self.transport.write(f"HTTP/1.1 400 Bad Request\r\n{lines}\r\n".encode() + body)
        self.transport.close()

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close_if_late(self) -> None:
        self._late = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


PROTOCOL: Mapping[str, Any] = {
    "http": PunctualProtocol,
    "ws": "none",
    "h11_max_incomplete_event_size": 16384,
    "server_header": False,
    "proxy_headers": False,
    "access_log": False,
}
"""Options of uvicorn that belong to the guard."""
