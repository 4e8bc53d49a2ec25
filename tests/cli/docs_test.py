#!/usr/bin/env python3
"""The documentation agrees with the program. Usage: docs_test.py HEADGATE

Every key that the readers of policies know is in the reference, every YAML block there can be loaded, every message is
what the binary prints, and every command in the guides and the README was run.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BINARY = ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs/reference/policies.md"
PAGES = [ROOT / "README.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r'"([A-Za-z_]+)"')


def run(arguments, where):
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LANG", "LC_ALL", "LC_CTYPE")}
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60, cwd=where, env=environment)


def blocks(page):
    """(kind, text) of each fenced block."""
    return FENCE.findall(page.read_text())


def known_keys():
    """By source file: the keys of every mapping that the readers know, out of their lists of allowed ones."""
    keys = {}
    for source in sorted((ROOT / "src/policy").glob("*.cc")):
        text = source.read_text()
        lists = re.findall(r"\b(?:fields_?|lists|numbers) ?\([^{};]*?\{((?:\s*\"\w+\",?|\s*\w+,?)*)\s*\}\)", text)
        lists += re.findall(r"(?:return|allowed|kNames) ?\{((?:\s*\"\w+\",?)+)\s*\};", text)
        lists += re.findall(r"allowed\.insert\([^{}]*\{((?:\s*\"\w+\",?)+)\s*\}\)", text)
        found = {word for each in lists for word in WORD.findall(each)}
        found |= set(re.findall(r"emplace_back\(\"(\w+)\"\)", text) if source.name == "s1.cc" else ())
        if found:
            keys[source.name] = found
    return keys


class Reference(unittest.TestCase):
    def test_every_key_that_readers_know_is_documented(self):
        keys = known_keys()
        # The pattern above still finds what it is meant to find.
        for name, least in {"native.cc": 27, "settings.cc": 34, "limit_reader.cc": 13, "match_reader.cc": 16,
                            "reader.cc": 6, "s1.cc": 14, "s3.cc": 6, "envoy.cc": 11}.items():
            self.assertGreaterEqual(len(keys.get(name, ())), least, name)
        documented = set(re.findall(r"`([A-Za-z_]+)`", REFERENCE.read_text()))
        for name, known in keys.items():
            self.assertEqual(known - documented, set(), f"keys of src/policy/{name} that {REFERENCE.name} lacks")

    def test_every_word_of_an_enumeration_is_documented(self):
        model = (ROOT / "src/policy/model.cc").read_text() + (ROOT / "src/core/limit.cc").read_text()
        words = set(re.findall(r"case (?:Mode|Action|Missing|OnStoreFailure|Tier|Dimension|Strategy|Period)::\w+: "
                               r"return \"(\w+)\"", model))
        self.assertGreater(len(words), 35)
        text = REFERENCE.read_text()
        self.assertEqual({w for w in words - {"attr"} if f"`{w}`" not in text}, set())

    def test_every_document_in_it_is_valid(self):
        documents = [text for kind, text in blocks(REFERENCE) if kind == "yaml"]
        self.assertGreater(len(documents), 5)
        for text in documents:
            with self.subTest(text), tempfile.TemporaryDirectory() as here:
                pathlib.Path(here, "policies.yaml").write_text(text)
                result = run(["policy", "validate", "policies.yaml"], here)
                self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_every_message_in_it_is_what_is_printed(self):
        found = blocks(REFERENCE)
        pairs = [(text, found[i + 1][1]) for i, (kind, text) in enumerate(found) if kind == "yaml bad"]
        self.assertTrue(pairs)
        for text, messages in pairs:
            with self.subTest(text), tempfile.TemporaryDirectory() as here:
                pathlib.Path(here, "policies.yaml").write_text(text)
                self.assertEqual(run(["policy", "validate", "policies.yaml"], here).stderr, messages)


class Pages(unittest.TestCase):
    def test_every_command_shown_prints_what_is_shown(self):
        """A console block is commands after `$ `, each with its output; YAML that begins with `# FILE` is that."""
        shown = 0
        for page in PAGES:
            with tempfile.TemporaryDirectory() as here:
                os.symlink(ROOT / "examples", pathlib.Path(here, "examples"))
                for kind, text in blocks(page):
                    first = text.split("\n", 1)[0]
                    if kind in ("yaml", "json") and re.fullmatch(r"# [\w.-]+", first):
                        pathlib.Path(here, first[2:]).write_text(text)
                    if kind != "console":
                        continue
                    for command, output in re.findall(r"^\$ headgate ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", text, re.M):
                        with self.subTest(page=page.name, command=command):
                            result = run(command.split(), here)
                            self.assertEqual(result.stdout + result.stderr, output)
                            self.assertTrue(all(len(line) <= 80 for line in result.stdout.splitlines()))
                            shown += 1
        self.assertGreater(shown, 0)

    def test_links_lead_somewhere(self):
        for page in PAGES + [ROOT / "CONTRIBUTING.md"]:
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
                path, _, anchor = target.partition("#")
                if "://" in target:
                    continue
                with self.subTest(page=page.name, target=target):
                    file = page.parent / path if path else page
                    self.assertTrue(file.exists())
                    if not anchor:
                        continue
                    titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
                    anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
                    self.assertIn(anchor, anchors)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
