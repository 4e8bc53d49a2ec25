#!/usr/bin/env python3
"""Every command that the documentation shows against a running server prints what is shown.

A block ```console server is commands after `$ `, each with its output. The server is that of the quick start, on other
ports; what differs from run to run (times, leases) is compared by its shape. With --write the pages are filled in.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import harness

PAGES = [harness.ROOT / "README.md", *sorted((harness.ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```console server\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)
WRITE = "--write" in sys.argv
if WRITE:
    sys.argv.remove("--write")


def shape(text):
    text = re.sub(r"\b1\d{12}\b", "TIME", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "LEASE", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\bin \d+(?:\.\d+)?[dhms][0-9dhms]*\b", "in SPAN", text)
    text = re.sub(r'"enabled_by":"[^"]*"', '"enabled_by":WHO', text)
    return re.sub(r"(?m)[ \t]+$", "", text)


class Pages(unittest.TestCase):
    def test_every_command_prints_what_is_shown(self):
        shown = 0
        for page in PAGES:
            text = page.read_text()
            if not BLOCK.search(text):
                continue
            with tempfile.TemporaryDirectory() as here:
                data = pathlib.Path(here, "headgate-data")
                data.mkdir()
                (pathlib.Path(here) / "examples").symlink_to(harness.ROOT / "examples")
                with harness.Server("--policies", str(harness.ROOT / "examples/policies"), data=str(data)) as server:
                    def run(match):
                        nonlocal shown
                        command, expected = match.groups()
                        real = command.replace("127.0.0.1:7070", f"127.0.0.1:{server.ports['http']}")
                        real = real.replace("-p 7379", f"-p {server.ports['resp']}")
                        real = re.sub(r"^(headgate|\./run) ", f"{harness.BINARY} ", real)
                        done = subprocess.run(["bash", "-c", real], capture_output=True, text=True, cwd=here,
                                              timeout=harness.PATIENCE,
                                              env={"PATH": "/usr/bin:/bin", "HEADGATE_URL": server.url})
                        output = done.stdout + done.stderr
                        output = output.replace(f":{server.ports['http']}", ":7070")
                        if output and not output.endswith("\n"):
                            output += "\n"
                        shown += 1
                        if not WRITE:
                            with self.subTest(page=page.name, command=command):
                                self.assertEqual(shape(output), shape(expected))
                        return f"$ {command}\n{output}"

                    filled = BLOCK.sub(lambda block: "```console server\n" + COMMAND.sub(run, block.group(1)) + "```", text)
                if WRITE:
                    page.write_text(filled)
        self.assertGreater(shown, 5)

    def test_the_ledger_that_is_named_is_the_one_that_the_server_makes(self):
        # Of another name sqlite3 makes an empty file, and a backup of nothing.
        named = {name for page in PAGES for name in re.findall(r"[\w./-]*ledger\.db", page.read_text())}
        named.discard("/x/y.ledger.db")  # with a setting of its own
        self.assertEqual(named, {"headgate-data/headgate.ledger.db"})
        with tempfile.TemporaryDirectory() as here, harness.Server(data=f"{here}/headgate-data"):
            self.assertTrue(pathlib.Path(here, *named).is_file())


if __name__ == "__main__":
    harness.main()
