"""A real PostgreSQL for end-to-end tests, in a folder of its own, reached through a socket there."""

import glob
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

import harness


class Postgres:
    """PostgreSQL refuses to run as root: then it is the user postgres."""

    def __init__(self):
        self.servant = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="headgate-pg-", dir=where))
        if self.servant:
            os.chown(self.folder, self.servant.pw_uid, self.servant.pw_gid)
        self.bin = pathlib.Path(max(glob.glob("/usr/lib/postgresql/*/bin")))
        self._run("initdb", "--pgdata", self.folder / "data", "--auth", "trust", "--username", "tester", "--no-sync",
                  "--encoding", "UTF8", "--locale", "C")
        with open(self.folder / "data" / "postgresql.conf", "a") as conf:
            conf.write(f"listen_addresses = ''\nunix_socket_directories = '{self.folder}'\nfsync = off\n"
                       "shared_buffers = 32MB\nautovacuum = off\n")
        self.process = None
        self.start()

    def _as_servant(self):
        return {"user": self.servant.pw_uid, "group": self.servant.pw_gid, "extra_groups": []} if self.servant else {}

    def _run(self, name, *arguments):
        subprocess.run([str(self.bin / name), *map(str, arguments)], check=True, cwd="/", stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, **self._as_servant())

    def start(self):
        self.process = subprocess.Popen([str(self.bin / "postgres"), "-D", str(self.folder / "data")], cwd="/",
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._as_servant())
        harness.wait_until(lambda: subprocess.run([str(self.bin / "pg_isready"), "-q", "-h", str(self.folder), "-U",
                                                   "tester"], check=False).returncode == 0, "PostgreSQL is ready")

    def crash(self):
        """At once, without closing connections."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(harness.PATIENCE)

    @property
    def url(self):
        return f"postgresql://tester@/postgres?host={self.folder}"

    def query(self, text):
        return subprocess.run([str(self.bin / "psql"), "-h", str(self.folder), "-U", "tester", "-d", "postgres", "-At",
                               "-c", text], check=True, capture_output=True, text=True).stdout.strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)
