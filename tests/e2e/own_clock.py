"""A wall clock that a test sets while the server runs, by libfaketime."""

import glob
import pathlib
import tempfile

import harness

LIBRARIES = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")


class Clock:
    """A clock of its own for a program, which is set while that runs. Spans are measured as ever."""

    @staticmethod
    def check_usable(test):
        test.assertTrue(LIBRARIES, "libfaketime is missing: tools/install-packages test")
        if b"__asan_init" in pathlib.Path(harness.BINARY).read_bytes():
            test.skipTest("a sanitizer's runtime must be loaded first")

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "shift"
        self.set("+0")

    def set(self, shift):
        self.path.with_suffix(".new").write_text(shift + "\n")
        self.path.with_suffix(".new").rename(self.path)

    @property
    def env(self):
        return {"LD_PRELOAD": LIBRARIES[0], "FAKETIME_TIMESTAMP_FILE": str(self.path), "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()
