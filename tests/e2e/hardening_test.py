#!/usr/bin/env python3
"""Hardening by compiler and linker, read from the binary, and the sandbox of the systemd unit.

For a release build: hardening_test.py build/release/src/headgate --release, which also asks for what only the compiler
can add.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness

RELEASE = "--release" in sys.argv
UNIT = harness.ROOT / "packaging" / "headgate.service"
MOST_EXPOSED = 2.0


def tool(*command):
    environment = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


class Binary(unittest.TestCase):
    def test_its_place_in_memory_is_random(self):
        self.assertRegex(tool("readelf", "-hW", harness.BINARY), r"Type:\s+DYN")
        self.assertRegex(tool("readelf", "-dW", harness.BINARY), r"\(FLAGS_1\).*\bPIE\b")

    def test_what_the_loader_writes_is_read_only_afterwards(self):
        self.assertRegex(tool("readelf", "-lW", harness.BINARY), r"GNU_RELRO")
        self.assertRegex(tool("readelf", "-dW", harness.BINARY), r"\(FLAGS_1\).*\bNOW\b")

    def test_no_memory_is_writable_and_executable(self):
        headers = tool("readelf", "-lW", harness.BINARY)
        self.assertRegex(headers, r"GNU_STACK\s.*\sRW\s")
        for line in headers.splitlines():
            self.assertNotRegex(line, r"^\s+LOAD\s.*\sRWE\s")

    @unittest.skipUnless(RELEASE, "only release builds have them")
    def test_stacks_have_canaries(self):
        self.assertIn("__stack_chk_fail", tool("readelf", "--dyn-syms", "-W", harness.BINARY))

    @unittest.skipUnless(RELEASE and "x86" in tool("uname", "-m"), "only release builds for x86 have them")
    def test_indirect_branches_have_marked_targets(self):
        self.assertIn("endbr64", tool("objdump", "-d", "--disassemble=main", harness.BINARY))

    @unittest.skipUnless(RELEASE, "takes an optimised build")
    def test_calls_of_the_c_library_are_checked(self):
        checked = set(re.findall(r"\b(__\w+_chk)@", tool("readelf", "--dyn-syms", "-W", harness.BINARY)))
        self.assertTrue(checked, "no __*_chk function is called")


class Unit(unittest.TestCase):
    def test_the_sandbox_leaves_little(self):
        said = tool("systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT))
        figure = re.search(r"Overall exposure level for headgate.service: ([0-9.]+)", said)
        self.assertIsNotNone(figure, said)
        self.assertLess(float(figure[1]), MOST_EXPOSED, said)

    def test_systemd_understands_every_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("headgate.service", "headgate.socket"):
                text = (UNIT.parent / name).read_text().replace("/usr/bin/headgate", shutil.which("true"))
                (pathlib.Path(folder) / name).write_text(text)
            said = subprocess.run(["systemd-analyze", "verify", "--man=no", f"{folder}/headgate.service",
                                   f"{folder}/headgate.socket"], capture_output=True, text=True)
            about_ours = [line for line in said.stderr.splitlines() if "headgate" in line]
            self.assertEqual(about_ours, [])


if __name__ == "__main__":
    if RELEASE:
        sys.argv.remove("--release")
    harness.main()
