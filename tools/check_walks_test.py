#!/usr/bin/env python3
"""Shows that check_walks.py finds what it must, on small trees made for it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).with_name("check_walks.py")
SOURCE = """class Door {
 public:
  [[nodiscard]] bool open(int key) {
    knock();
    return turn(key);
  }
  void close() noexcept;
};
std::string Door::name() const { return text_of(*this); }
inline int first(int a) { return a; }
"""
GOOD = "1. `Door::open()` and `first()` in `src/a.h`.\n" * 5


def run_on(page, source=SOURCE):
    with tempfile.TemporaryDirectory() as root:
        for name, text in {"docs/internals/walk-a.md": page, "src/a.h": source, "src/b.h": "\n"}.items():
            path = pathlib.Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


class CheckWalks(unittest.TestCase):
    def assert_broken(self, step, expected):
        code, output = run_on(GOOD + step)
        self.assertEqual(code, 1, output)
        self.assertIn(expected, output)

    def test_a_good_walk_passes(self):
        self.assertEqual(run_on(GOOD + "`Door::close()`,\n`Door::name`: `src/a.h`, `src/`.\n```\n`no()`\n```\n"),
                         (0, "12 functions in 1 walks exist\n"))

    def test_a_file_that_is_gone_is_found(self):
        self.assert_broken("- `src/gone.h`\n", "docs/internals/walk-a.md:6: there is no src/gone.h")

    def test_a_function_that_is_gone_is_found(self):
        self.assert_broken("1. `Door::lock()` in `src/a.h`\n", "docs/internals/walk-a.md:6: Door::lock() is not in src/a.h")

    def test_a_call_is_no_declaration(self):
        self.assert_broken("- `knock()` in `src/a.h`\n", "knock() is not in src/a.h")
        self.assert_broken("- `turn()` in `src/a.h`\n", "turn() is not in src/a.h")

    def test_a_function_of_another_class_or_file_does_not_count(self):
        self.assert_broken("- `Gate::open()` in `src/a.h`\n", "Gate::open() is not in src/a.h")
        self.assert_broken("- `first()` in `src/b.h`\n", "first() is not in src/b.h")

    def test_each_step_names_its_file(self):
        self.assert_broken("\n`first()` is next.\n", "first() is not in any file, since this step names none")

    def test_a_page_without_functions_is_no_walk(self):
        code, output = run_on("Nothing.\n")
        self.assertEqual((code, output),
                         (1, "docs/internals/walk-a.md:1: a walk names at least 10 functions, this one 0\n"))


if __name__ == "__main__":
    unittest.main()
