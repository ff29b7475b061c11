"""`/metrics` and `/healthz` over HTTP: read only, a few at a time, and nobody who is slow holds up the agent."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from ett_collector.agent.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 2.0
AT_ONCE = 8


class Page:
    """Serves until `close`. `health` says what is wrong, empty for nothing. Raises `OSError` for a taken address."""

    def __init__(
        self, address: tuple[str, int], metrics: Callable[[], str], health: Callable[[], str]
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = PATIENCE_S
            server_version = "ett-agent"
            sys_version = ""

            def do_GET(self) -> None:
                if self.path.partition("?")[0] == "/metrics":
                    self._answer(200, metrics(), CONTENT_TYPE)
                elif self.path == "/healthz":
                    wrong = health()
                    self._answer(503 if wrong else 200, (wrong or "ok") + "\n", "text/plain; charset=utf-8")
                else:
                    self._answer(404, "here are /metrics and /healthz\n", "text/plain; charset=utf-8")

            do_HEAD = do_GET  # noqa: N815 - as http.server asks for

            def _answer(self, status: int, text: str, kind: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing: a scrape is no news."""

        self._server = _Server(address, Handler)
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        threading.Thread(target=self._server.serve_forever, name="ett-page", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(AT_ONCE)
        host = address[0] or ("::" if socket.has_dualstack_ipv6() else "")  # all addresses, of both families
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, address[1]), handler)

    def server_bind(self) -> None:
        """Bind; the one for all addresses of IPv6 takes those of IPv4, too."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)  # HTTPServer's asks the name server for a name that nobody needs
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve, or hang up where too many are served."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In the thread of one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, *_: object) -> None:
        """Whoever hung up knows it."""
