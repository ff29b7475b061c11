"""Around the real programs while they run: ports, whether they are ready, what Prometheus answers, a webhook."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_ready(address: str) -> bool:
    """Whether Prometheus or Alertmanager at host:port says that it is."""
    try:
        with urlopen(f"http://{address}/-/ready", timeout=10) as answer:
            return bool(answer.status == 200)
    except HTTPError as error:
        error.close()  # or whoever collects garbage next is told of an open connection
        return False
    except OSError:
        return False


def answered(prometheus: str, path: str, **asked: str) -> Any:
    """The data of an answer of Prometheus' API."""
    with urlopen(f"http://{prometheus}/api/v1/{path}?{urlencode(asked)}", timeout=60) as answer:
        return json.load(answer)["data"]


def results(prometheus: str, query: str) -> list[tuple[dict[str, str], float]]:
    """Labels and value of all samples of an instant query."""
    told = answered(prometheus, "query", query=query)["result"]
    return [(one["metric"], float(one["value"][1])) for one in told]


def ask(prometheus: str, query: str) -> float | None:
    """The only value of an instant query, or None."""
    values = [value for _, value in results(prometheus, query)]
    assert len(values) < 2
    return values[0] if values else None


@contextmanager
def webhook() -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """Where alerts are delivered: its address, and every alert as it comes."""
    alerts: Queue[dict[str, Any]] = Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in body["alerts"]:
                alerts.put(alert)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", alerts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
