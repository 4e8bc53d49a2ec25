#!/usr/bin/env python3
"""Checks that the walks through the code (docs/internals/walk-*.md) name files and functions that exist.

Usage: check_walks.py [ROOT]. In a walk, `src/...` or `include/...` in backquotes is a file, and `name()` or
`Class::name()` is a function, which must be declared or defined in a file that the same paragraph or list item names.
Prints page:line and what is missing; exits 1 if anything is.
"""

import pathlib
import re
import sys

CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:src|include)/[\w./-]+")
FUNCTION = re.compile(r"(?:(\w+)::)?(\w+)\(\)|(\w+)::([a-z_]\w*)")
NEW_STEP = re.compile(r"^\s*(?:\d+\.|[-*])\s|^#")
FEWEST = 10  # functions of a page: fewer are no walk


def steps(text):
    """Yields (line number, text) of each paragraph and list item outside of fenced blocks."""
    text = FENCED.sub(lambda block: "\n" * block.group().count("\n"), text)
    start, lines = 1, []
    for number, line in enumerate(text.splitlines() + [""], start=1):
        if lines and (not line.strip() or NEW_STEP.match(line)):
            yield start, "\n".join(lines)
            lines = []
        if line.strip():
            start = start if lines else number
            lines.append(line)


def has_function(source, owner, name):
    """Whether it is declared or defined there, not only called."""
    declared = r"^(?! *(?:return|throw|else)\b)[\w:<>,&*\[\]~ ]*[\w>&*\]] [*&]?"
    if owner and re.search(rf"{declared}(?:\w+::)*{owner}::{name}\(", source, re.MULTILINE):
        return True
    if owner and not re.search(rf"^\s*(?:class|struct) (?:\w+::)*{owner}\b(?!::)", source, re.MULTILINE):
        return False
    return re.search(rf"{declared}(?:\w+::)*{name}\(", source, re.MULTILINE) is not None


def check_page(root, page):
    """(number of functions named, problems)."""
    problems, functions = [], 0
    for number, text in steps(page.read_text(encoding="utf-8")):
        where = f"{page.relative_to(root)}:{number}"
        words = CODE.findall(text)
        sources = {}
        for name in filter(FILE.fullmatch, words):
            if not (root / name).exists():
                problems.append(f"{where}: there is no {name}")
            elif (root / name).is_file():
                sources[name] = (root / name).read_text(encoding="utf-8")
        for match in filter(None, map(FUNCTION.fullmatch, words)):
            functions += 1
            owner, name = match[1] or match[3], match[2] or match[4]
            if not any(has_function(source, owner, name) for source in sources.values()):
                files = " or ".join(sources) or "any file, since this step names none"
                problems.append(f"{where}: {match[0]} is not in {files}")
    if functions < FEWEST:
        problems.append(f"{page.relative_to(root)}:1: a walk names at least {FEWEST} functions, this one {functions}")
    return functions, problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    pages = sorted((root / "docs/internals").glob("walk-*.md"))
    results = [check_page(root, page) for page in pages]
    problems = [problem for _, of_page in results for problem in of_page]
    if not pages:
        problems.append(f"{root}: no docs/internals/walk-*.md")
    for problem in problems:
        print(problem)
    if problems:
        return 1
    print(f"{sum(count for count, _ in results)} functions in {len(pages)} walks exist")
    return 0


if __name__ == "__main__":
    sys.exit(main())
