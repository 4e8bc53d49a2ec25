"""What tests of several nodes share: Redis servers that can be hurt, a wire that can be cut, and many clients at once."""

import contextlib
import http.client
import json
import pathlib
import signal
import socket
import tempfile
import threading
import time

import harness
import redis

# No answer takes longer, whatever happens to Redis: many times the deadline, since the machine may be busy.
PROMPT = 15.0


class Redis:
    """A redis-server on a free port, with a folder of its own that outlives its restarts."""

    def __init__(self, *arguments, port=None):
        self.folder = tempfile.TemporaryDirectory()
        self.port = port or harness.free_port()
        self.command = ["redis-server", "--port", str(self.port), "--dir", self.folder.name, "--save", "", *arguments]
        self.start()

    def start(self):
        self.program = harness.Program(self.command, self.port)
        harness.wait_until(self.answers, "a Redis that has read its data")

    def answers(self):
        with contextlib.suppress(redis.ConnectionError, redis.BusyLoadingError), self.client() as client:
            try:
                return client.info("server")["process_id"] == self.program.process.pid and client.ping()
            except redis.AuthenticationError:
                return True
        return False

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def client(self):
        client = redis.Redis("127.0.0.1", self.port, socket_timeout=harness.PATIENCE)
        try:
            yield client
        finally:
            client.close()

    def do(self, *words):
        with self.client() as client:
            return client.execute_command(*words)

    def zrange(self, *arguments, **options):
        with self.client() as client:
            return client.zrange(*arguments, **options)

    def info(self):
        with self.client() as client:
            return client.info("replication")

    def cluster_state(self):
        """What it thinks of the cluster, and how many servers it knows to have slots."""
        said = dict(line.split(":", 1) for line in self.do("CLUSTER", "INFO").decode().split())
        return said["cluster_state"], said["cluster_size"]

    def send(self, signal_number):
        self.program.process.send_signal(signal_number)

    def kill(self):
        self.send(signal.SIGKILL)
        self.program.__exit__()

    @contextlib.contextmanager
    def paused(self):
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.program.process.poll() is None:
            self.kill()
        self.folder.cleanup()


class Wire:
    """A way to a port that can be cut: then what is open is closed, and nothing new gets through."""

    def __init__(self, port):
        self.to = port
        self.whole = True
        self.lock = threading.Lock()
        self.open = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                if not self.whole:
                    near.close()
                    continue
            try:
                far = socket.create_connection(("127.0.0.1", self.to), timeout=harness.PATIENCE)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self.lock:
                self.open |= {near, far}
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                sink.sendall(piece)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)  # so that the other direction ends, too
        with self.lock:
            self.open.discard(source)
        source.close()

    def cut(self):
        with self.lock:
            self.whole = False
            for end in self.open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self):
        with self.lock:
            self.whole = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cut()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(harness.PATIENCE)


class Node(harness.Server):
    """A server that shares its cells. A deadline of seconds: none is missed because the machine is busy."""

    def __init__(self, name, url, policies, deadline="5s", data=None, env=None, **settings):
        env = {**(env or {}), "HEADGATE_STORE_KIND": "redis", "HEADGATE_STORE_URL": url, "HEADGATE_STORE_NODE": name,
               "HEADGATE_STORE_DEADLINE": deadline}
        env.update({f"HEADGATE_STORE_{key.upper()}": str(value) for key, value in settings.items()})
        super().__init__("--grpc", "off", policies=policies, data=data, env=env)
        self.name = name

    def is_ready(self):
        return self.call("GET", "/readyz").status == 200

    def told(self, kind):
        """The notices of a kind, as people see them."""
        alerts = self.manage("GET", "/api/alerts").json["alerts"]
        return [alert for alert in alerts if alert["kind"] == kind]

    def logged(self, words):
        return [line for line in self.log if words in line]

    def left(self, agent, operation):
        """Units; what a look says to remain is without the one it looks for."""
        answer = self.check(agent, operation, peek=True)
        return answer["remaining"] + answer["allowed"]


@contextlib.contextmanager
def nodes(count, url, policies, **settings):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Node(f"n{i + 1}", url, policies, **settings)) for i in range(count)]


def wait_until_acquainted(server, count):
    """Until each node has been heard of twice since all were: then each knows how many they are, and goes by it."""
    def heard():
        return dict(server.zrange("headgate:{control}:nodes", 0, -1, withscores=True))

    harness.wait_until(lambda: len(heard()) == count, f"{count} nodes")
    for _ in range(2):
        before = heard()
        harness.wait_until(lambda known=before: all(heard()[name] > at for name, at in known.items()),
                           "a sign of life of each node")


class Crowd:
    """Clients that ask several nodes at once, half over HTTP and half over RESP, and note every answer."""

    def __init__(self, made, operation, agents, clients=6):
        self.lock = threading.Lock()
        self.admitted = {agent: 0 for agent in agents}
        self.asked = 0
        self.slowest = 0.0
        self.wrong = []
        self.ending = threading.Event()
        self.operation = operation
        self.agents = list(agents)
        self.threads = []
        for i in range(clients):
            node = made[i % len(made)]
            ask = self._http if (i // len(made)) % 2 == 0 else self._resp
            self.threads.append(threading.Thread(target=self._run, args=(ask, node, i), daemon=True))

    def run(self, each):
        """Every client asks so many times."""
        self.each = each
        self._go()
        return self.end()

    @contextlib.contextmanager
    def running(self):
        """They ask until the end of the block."""
        self.each = None
        self._go()
        try:
            yield self
        finally:
            self.ending.set()
            self.end()

    def _go(self):
        for thread in self.threads:
            thread.start()

    def end(self):
        for thread in self.threads:
            thread.join(harness.PATIENCE)
            if thread.is_alive():
                self.wrong.append("a client hangs")
        return self

    @contextlib.contextmanager
    def _http(self, node):
        connection = http.client.HTTPConnection("127.0.0.1", node.ports["http"], timeout=harness.PATIENCE)

        def ask(agent):
            connection.request("POST", "/v1/check", json.dumps({"agent": agent, "operation": self.operation}))
            answer = connection.getresponse()
            body = json.loads(answer.read())
            if answer.status != 200:
                raise AssertionError(f"{answer.status} {body}")
            return body["allowed"]

        with contextlib.closing(connection):
            yield ask

    @contextlib.contextmanager
    def _resp(self, node):
        client = redis.Redis("127.0.0.1", node.ports["resp"], socket_timeout=harness.PATIENCE)
        with contextlib.closing(client):
            yield lambda agent: client.execute_command("HG.CHECK", agent, self.operation)[0] == 1

    def _run(self, way, node, number):
        try:
            with way(node) as ask:
                turn = 0
                while turn != self.each and not self.ending.is_set():
                    agent = self.agents[(number + turn) % len(self.agents)]
                    before = time.monotonic()
                    allowed = ask(agent)
                    took = time.monotonic() - before
                    turn += 1
                    with self.lock:
                        self.asked += 1
                        self.admitted[agent] += allowed
                        self.slowest = max(self.slowest, took)
        except Exception as error:  # noqa: BLE001 - whatever went wrong fails the test, in its own thread
            self.wrong.append(f"{node.name}: {error!r}")


@contextlib.contextmanager
def sentinel(port, master_port, *lines):
    """One whose word alone counts, half a second after it last heard of the master; with more lines of configuration."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "sentinel.conf"
        path.write_text(f"port {port}\ndir {folder}\n"
                        f"sentinel monitor main 127.0.0.1 {master_port} 1\n"
                        "sentinel down-after-milliseconds main 500\n"
                        "sentinel failover-timeout main 2000\n" + "".join(f"{line}\n" for line in lines))
        with harness.Program(["redis-server", path, "--sentinel"], port) as program:
            yield program


@contextlib.contextmanager
def cluster(count):
    """So many masters, which share the slots evenly."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Redis("--cluster-enabled", "yes")) for _ in range(count)]
        join(servers)
        yield servers


def join(servers):
    share = 16384 // len(servers)
    for i, server in enumerate(servers):
        last = 16383 if i == len(servers) - 1 else (i + 1) * share - 1
        server.do("CLUSTER", "ADDSLOTSRANGE", i * share, last)
        server.do("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        if i > 0:
            server.do("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
    for server in servers:
        harness.wait_until(lambda s=server: s.cluster_state() == ("ok", str(len(servers))), "a cluster that is whole")
