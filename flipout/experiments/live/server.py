"""A server of the live page, for this machine alone."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from flipout.errors import DataError, InvalidArgument

from ..report.page import POLICY
from ..running.runs import CONFIG
from .page import live_page
from .state import read_state

HOST = "127.0.0.1"


class LiveServer(ThreadingHTTPServer):
    """Serves the page of one folder, made anew for each request.

    Args:
        folder: The folder of a run, finished or not.
        port: The port, or 0 for any that is free.

    Raises:
        DataError: The folder is no run.
        InvalidArgument: The port is taken.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, port: int = 0) -> None:
        if not (folder / CONFIG).is_file():
            raise DataError(
                f"{folder} is not a run: there is no {CONFIG} in it. Give the folder that `flipout run NAME` works in; "
                "it is there as soon as the run has started."
            )
        self.folder = folder
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InvalidArgument(
                f"--port {port} cannot be used ({error}): choose another, or leave it out for any that is free."
            ) from error

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that left before its answer: the terminal belongs to the user."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # pyright: ignore[reportArgumentType]

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = 10  # seconds without a word of a client, after which its connection ends

    def do_GET(self) -> None:
        # DNS rebinding: a page of another host, whose name resolves to this address, must not read the run.
        names = (f"{HOST}:{self.server.server_port}", f"localhost:{self.server.server_port}")
        if self.path != "/" or self.headers.get_all("Host", []) not in ([name] for name in names):
            self.send_error(404)
            return
        content = live_page(read_state(self.server.folder)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", f"{POLICY}; frame-ancestors 'none'")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal belongs to the user."""
