"""A program on a terminal of its own."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from waiting import PATIENCE

STEERING = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    def __init__(self, arguments, env, size=None, stderr=None):
        """`size`: columns and rows. `stderr`: where that goes, if not to the terminal."""
        self.ours, self.theirs = pty.openpty()
        if size:
            self.resize(*size)
        self.before = termios.tcgetattr(self.theirs)
        self.process = subprocess.Popen(arguments, stdin=self.theirs, stdout=self.theirs, stderr=stderr or self.theirs,
                                        start_new_session=True, env=env,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen = b""

    def resize(self, columns, rows):
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        if select.select([self.ours], [], [], seconds)[0]:
            self.seen += os.read(self.ours, 65536)

    def wait_for(self, text):
        """Until it has been shown since the last forget()."""
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in STEERING.sub(b"", self.seen):
            if time.monotonic() > deadline:
                raise AssertionError(f"{text!r} was not shown, but: {self.seen[-3000:]!r}")
            self.read(0.2)

    def forget(self):
        """What was seen so far, which it gives back."""
        seen, self.seen = self.seen, b""
        return seen

    def press(self, keys):
        os.write(self.ours, keys if isinstance(keys, bytes) else keys.encode())

    def press_until(self, keys, text, every=5):
        """Presses again every few seconds, until the text has been shown."""
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in STEERING.sub(b"", self.seen) and time.monotonic() < deadline:
            self.press(keys)
            again = time.monotonic() + every
            while text.encode() not in STEERING.sub(b"", self.seen) and time.monotonic() < again:
                self.read(0.2)
        self.wait_for(text)

    def wait_for_end(self):
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.05)
        self.read(0)
        return self.process.wait(timeout=1)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        os.close(self.ours)
        os.close(self.theirs)
