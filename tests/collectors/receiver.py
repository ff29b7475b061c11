"""A small real service for the agent's tests: HTTP, checked by the wire, stored once per identity.

It keeps the contract of `POST /v1/events` (wire.md), and can be told to refuse, to lose its answers, or to ask
for patience.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ett_collector.wire import CODING, DICTIONARY, Event, Rejected, decode_event, expand


def unpack(raw: bytes, coding: str) -> bytes:
    """A body as it was before it was packed."""
    if coding == "gzip":
        return gzip.decompress(raw)
    assert CODING == coding
    stream = zlib.decompressobj(zdict=DICTIONARY)
    body = stream.decompress(raw)
    assert stream.eof
    return body


class Receiver:
    """Serves on a free loopback port until `close`. `script` answers the next requests instead of it."""

    def __init__(self, *, clock_ahead_ns: int = 0) -> None:
        self.events: dict[tuple[str, str, int], Event] = {}
        self.duplicates = 0
        self.requests: list[tuple[float, int, int]] = []  # (monotonic, events, status)
        self.bodies: list[bytes] = []
        self.codings: list[str] = []
        self.spoken = ["gzip", CODING]
        self.offsets: dict[tuple[str, str, int], set[int]] = {}
        self.script: list[tuple[int, dict[str, str]]] = []
        self.lose_answers = 0
        self.version = "0.1.0"
        self.token = ""  # what a request has to bring
        self.refuse_types: set[str] = set()
        self.clock_ahead_ns = clock_ahead_ns
        self.lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.answer(self)

            def do_GET(self) -> None:
                data = json.dumps({"status": "ok", "version": receiver.version}).encode()
                self.send_response(200 if self.path in ("/healthz", "/readyz") else 404)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Take one request."""
        raw = request.rfile.read(int(request.headers["Content-Length"]))
        coding = request.headers["Content-Encoding"]
        body = json.loads(unpack(raw, coding))
        rows = [*body["events"], *(row for batch in body.get("batches", ()) for row in expand(batch))]
        with self.lock:
            self.codings.append(coding)
            status, headers = self.script.pop(0) if self.script and rows else (200, {})
            if coding not in self.spoken:
                status = 415
            if self.token and request.headers["Authorization"] != f"Bearer {self.token}":
                status = 401
            said: dict[str, Any] = {"title": "as the test asked for"}
            if status == 200:
                self.bodies.append(raw)
                said = self._store(body, rows)
            self.requests.append((time.monotonic(), len(rows), status))
            if rows and self.lose_answers:
                self.lose_answers -= 1
                request.close_connection = True
                request.connection.close()
                return
        data = json.dumps(said).encode()
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _store(self, body: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
        agent, offset = body["agent"], body["clock_offset_ns"]
        accepted, refused = 0, []
        for index, row in enumerate(rows):
            if row["type"] in self.refuse_types:
                refused.append({"index": index, "seq": row["seq"], "reason": "the test refuses it"})
                continue
            try:
                event = decode_event(
                    row, node=agent["node"], incarnation=agent["incarnation"], clock_offset_ns=offset
                )
            except Rejected as error:
                refused.append({"index": index, "seq": row.get("seq"), "reason": str(error)})
                continue
            identity = (event.node, event.incarnation, event.seq)
            self.offsets.setdefault(identity, set()).add(offset)
            if identity in self.events:
                self.duplicates += 1
            else:
                self.events[identity] = event
                accepted += 1
        now = time.time_ns() + self.clock_ahead_ns
        return {"accepted": accepted, "duplicates": 0, "quarantined": refused, "server_time": now}

    def of(self, kind: str) -> list[Event]:
        """The stored events of one type in order of time."""
        with self.lock:
            found = [event for event in self.events.values() if event.type == kind]
        return sorted(found, key=lambda event: (event.start or 0, event.end or 0))
