"""The server shows a run that goes on, in a browser too, and nothing else."""

import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flipout.errors import DataError, InvalidArgument
from flipout.experiments import cli
from flipout.experiments.live.server import HOST, LiveServer, _Handler
from flipout.experiments.report.page import POLICY
from tests.browser import console, headless, requests


def log(folder: Path, step: int) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"piece": "shared.0", "step": step, "loss": 1 / (step + 1)}) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"experiment": "toy", "preset": "smoke", "seed": 0}))
    log(tmp_path, 0)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[LiveServer]:
    with LiveServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server: LiveServer, path: str = "/", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=100)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content


def test_each_request_sees_the_run_as_it_is(server, folder):
    status, page = get(server)
    assert status == 200
    assert page.count("<circle") == 1
    log(folder, 1)
    assert get(server)[1].count("<circle") == 2
    (folder / "metrics.jsonl").write_bytes(b"\xff{")
    status, page = get(server)
    assert status == 200
    assert "No metrics were logged yet" in page
    (folder / "config.json").unlink()  # the run is deleted
    assert get(server)[0] == 200


@pytest.mark.parametrize("path", ["/config.json", "/../config.json", "/x"])
def test_files_are_not_served(server, path):
    assert get(server, path)[0] == 404


def test_other_hosts_are_not_answered(server):
    assert get(server, host=f"localhost:{server.server_port}")[0] == 200
    assert get(server, host="evil.example")[0] == 404


def test_two_names_of_a_host_are_not_answered(server):
    names = [f"{HOST}:{server.server_port}", "evil.example"]
    for order in (names, names[::-1]):
        connection = http.client.HTTPConnection(HOST, server.server_port, timeout=100)
        connection.putrequest("GET", "/", skip_host=True)
        for name in order:
            connection.putheader("Host", name)
        connection.endheaders()
        assert connection.getresponse().status == 404
        connection.close()


def test_no_other_page_may_show_it_in_a_frame(server):
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=100)
    connection.request("GET", "/")
    headers = connection.getresponse().headers
    assert headers["Content-Security-Policy"] == f"{POLICY}; frame-ancestors 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_client_that_leaves_prints_nothing(server, capsys):
    """Closed with SO_LINGER 0, a connection is reset while its answer is written."""
    threads = threading.active_count()
    for _ in range(20):
        client = socket.create_connection((HOST, server.server_port))
        client.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}:{server.server_port}\r\n\r\n".encode())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    wait_for(lambda: threading.active_count() <= threads)
    assert capsys.readouterr().err == ""


def test_a_client_that_says_nothing_is_let_go(server, monkeypatch):
    monkeypatch.setattr(_Handler, "timeout", 0.2)
    threads = threading.active_count()
    clients = [socket.create_connection((HOST, server.server_port)) for _ in range(20)]
    clients[0].sendall(b"GET / HT")
    assert get(server)[0] == 200  # others are answered meanwhile
    assert [client.recv(1) for client in clients] == [b""] * 20  # the server ends each
    wait_for(lambda: threading.active_count() <= threads)
    for client in clients:
        client.close()


def test_an_error_of_the_page_itself_is_not_hidden(server, capsys, monkeypatch):
    monkeypatch.setattr("flipout.experiments.live.server.live_page", lambda _: 1 / 0)
    with pytest.raises(http.client.HTTPException):
        get(server)
    said = []
    wait_for(lambda: said.append(capsys.readouterr().err) or "ZeroDivisionError" in "".join(said))


def wait_for(is_so) -> None:
    """Wait for what other threads do. A busy machine may take long."""
    for _ in range(3000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never was so")


def test_refusals(folder, tmp_path_factory, server):
    with pytest.raises(DataError, match=r"is not a run: there is no config\.json in it"):
        LiveServer(tmp_path_factory.mktemp("empty"))
    for port in (server.server_port, 99999):
        with pytest.raises(InvalidArgument, match=f"--port {port} cannot be used"):
            LiveServer(folder, port)


def test_the_command_says_where_to_look_and_ends_with_ctrl_c(folder, capsys, monkeypatch):
    def stop(self: LiveServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveServer, "serve_forever", stop)
    assert cli.main(["watch", str(folder)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"Watch {folder} at http://127.0.0.1:")
    assert second == "Ctrl-C stops the page; the run continues."
    assert cli.main(["watch", "nowhere"]) == 2


def test_a_browser_shows_new_points_by_itself(server, folder):
    with headless() as driver:
        driver.get(server.address)
        assert driver.find_element("tag name", "h1").text == "toy · smoke"
        assert len(driver.find_elements("tag name", "circle")) == 1
        for step in range(1, 4):
            log(folder, step)
        for _ in range(1000):  # a busy machine is slow to draw
            if len(driver.find_elements("tag name", "circle")) == 4:
                break
            threading.Event().wait(0.1)
        assert len(driver.find_elements("tag name", "circle")) == 4
        assert console(driver) == []
        assert {url for url in requests(driver) if url.startswith("http")} == {server.address}
