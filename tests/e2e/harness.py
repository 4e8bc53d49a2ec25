"""What end-to-end tests share: a running server of their own, other programs on free ports, and plain HTTP."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from waiting import PATIENCE, avoid_midnight, wait_until  # noqa: E402, F401: for those who use the harness, too

BINARY = ""


def main():
    """Every script is called with the path of the binary."""
    global BINARY
    BINARY = os.path.abspath(sys.argv.pop(1))
    avoid_midnight()
    if not os.environ.get("HEADGATE_SANITIZED"):
        unittest.main()
    with tempfile.TemporaryDirectory() as reports:
        sanitize(reports)
        program = unittest.main(exit=False)
        sys.exit(0 if program.result.wasSuccessful() and not reported(reports) else 1)


def sanitize(reports):
    """Every process that is started from here on ends with the first thing a sanitizer finds, and writes it there."""
    for name, more in (("ASAN", "detect_leaks=1:"), ("TSAN", "second_deadlock_stack=1:"), ("UBSAN", "print_stacktrace=1:")):
        os.environ[f"{name}_OPTIONS"] = f"{more}halt_on_error=1:exitcode=99:log_path={reports}/report"


def reported(reports):
    """Whether a sanitizer has found something in any of these processes; prints it."""
    found = sorted(pathlib.Path(reports).iterdir())
    for report in found:
        print(report.read_text(errors="replace"), file=sys.stderr)
    return bool(found)


RESERVED = []  # sockets whose names keep other scripts from taking the same ports


def free_port():
    """Below the ports that the system gives to clients: waiting for a server there cannot connect to itself."""
    while True:
        port = random.randrange(12000, 22000)
        name = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            try:
                name.bind(f"\0headgate-test-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                name.close()
                continue
        RESERVED.append(name)
        return port


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Program:
    """Another program, on a port that it must open."""

    def __init__(self, command, port, cwd=None):
        self.process = subprocess.Popen([str(part) for part in command], cwd=cwd, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        self.said = []
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True)
        self.reader.start()
        wait_until(lambda: self.process.poll() is not None or listens(port), f"{command[0]} on port {port}")
        if self.process.poll() is not None:
            raise AssertionError(f"{command[0]} ended: {''.join(self.said)}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        self.process.stderr.close()


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Peer:
    """A plain connection to a port: what is sent is sent as it is."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.reader = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def line(self):
        """The next line with its end; b"": the other end has closed."""
        return self.reader.readline()

    def read(self, count):
        return self.reader.read(count)

    def rest(self):
        """All that comes until the other end closes, by a reset or without."""
        got = b""
        with contextlib.suppress(ConnectionError):
            while piece := self.reader.read1(65536):
                got += piece
        return got

    def reset(self):
        """Closes without a goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.reader.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Server:
    """headgate serve, on free ports, with a folder of its own."""

    def __init__(self, *arguments, policies=None, data=None, env=None):
        self.folder = None if data else tempfile.TemporaryDirectory()
        self.data = pathlib.Path(data or self.folder.name)
        command = [BINARY, "serve", "--data", str(self.data)]
        given = " ".join(arguments)
        for name in ("http", "resp", "grpc"):
            if f"--{name}" not in given:
                command += [f"--{name}", "127.0.0.1:0"]
        if policies is not None:
            path = self.data / "policies.yaml"
            path.write_text(policies)
            command += ["--policies", str(path)]
        # The load of the machine is no part of a test, unless it asks for it: env={"HEADGATE_LOAD_SENSORS": None}.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
        environment.update({"HEADGATE_LOAD_SENSORS": "false", **(env or {})})
        self.process = subprocess.Popen(command + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env={k: v for k, v in environment.items() if v is not None})
        self.log = []
        self.banner = []
        self.threads = [threading.Thread(target=self._read, args=(self.process.stderr, self.log), daemon=True),
                        threading.Thread(target=self._read, args=(self.process.stdout, self.banner), daemon=True)]
        for thread in self.threads:
            thread.start()
        wait_until(lambda: self.process.poll() is not None or self._ready(), "the server's first words")
        if self.process.poll() is not None:
            self.stop()
            if self.folder:
                self.folder.cleanup()
            raise AssertionError(f"the server ended with {self.process.returncode}: {''.join(self.log)}")
        self.ports = {name: int(port) for name, port in
                      re.findall(r"^  (http|resp|grpc) .*:(\d+)$", "".join(self.banner), re.MULTILINE)}

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line)

    def _ready(self):
        text = "".join(self.banner)
        return "Try a check" in text and text.endswith("\n") or ("  data " in text and "  http " not in text)

    @property
    def token(self):
        return (self.data / "admin.token").read_text().strip()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.ports['http']}"

    def connect(self, protocol):
        return Peer(self.ports[protocol])

    def call(self, method, path, body=None, headers=None, token=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=PATIENCE)
        with contextlib.closing(connection):
            sent = dict(headers or {})
            if token:
                sent["Authorization"] = f"Bearer {token}"
            if body is not None and not isinstance(body, (str, bytes)):
                body = json.dumps(body)
            connection.request(method, path, body, sent)
            return Answer(connection.getresponse())

    def manage(self, method, path, body=None, headers=None):
        return self.call(method, path, body, headers, self.token)

    def check(self, agent="A", operation="run", **more):
        return self.call("POST", "/v1/check", {"agent": agent, "operation": operation, **more}).json

    @contextlib.contextmanager
    def paused(self):
        """The process is stopped within the block; what is sent to it waits in its sockets."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        for thread in self.threads:
            thread.join(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
        if self.folder:
            self.folder.cleanup()


def headgate(*arguments, env=None, stdin=None, cwd=None):
    """One run of the command line."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, input=stdin,
                          env={**environment, **(env or {})}, cwd=cwd)
