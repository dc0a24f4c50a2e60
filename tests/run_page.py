#!/usr/bin/env python3
"""Does what a page says, from top to bottom.

    run_page.py PAGE [--folder FOLDER | --print] [--without HEADING]... [--only HEADING]...

A block of code whose first line is a comment with a file's name (`// layer.cpp`, `/* c/layer.c */`, `# list.csv`) is written to that
file, a block of sh is run by bash, which ends at the first command that fails; all in FOLDER, else in a new one; or the
script that does all this is printed. Sections are left out, or alone are done, by their headings. Each command is printed before it runs.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

NAMED = re.compile(r"^(?://|#|/\*) ([\w./-]+\.\w+)(?: \*/)?$")


def sections(text):
    """Heading and content of each; fences may hold lines that look like headings."""
    heading, lines, inside = "", [], False
    for line in text.splitlines(keepends=True):
        inside ^= line.startswith("```")
        if line.startswith("#") and not inside:
            yield heading, "".join(lines)
            heading, lines = line.strip("# \n"), []
        lines.append(line)
    yield heading, "".join(lines)


def blocks(text):
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        name = NAMED.match(block.split("\n", 1)[0])
        if name:
            yield "file", name[1], block
        elif language == "sh":
            yield "sh", None, block


def script_of(page, without, only):
    """What bash is to do, and of how many blocks that is."""
    lines, done = ["set -eu"], 0
    for heading, text in sections(page.read_text()):
        if heading in without or (only and heading not in only):
            continue
        for kind, name, block in blocks(text):
            done += 1
            if kind == "file":
                lines.append(f"mkdir -p {shquote(os.path.dirname(name) or '.')}\ncat >{shquote(name)} <<'END OF {name}'\n{block}END OF {name}")
                continue
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                lines.append(f"echo {shquote('$ ' + line)}")
                # -e does not heed a command after "!".
                lines.append(f"if {line[2:]}; then echo 'that should have failed'; exit 1; fi" if line.startswith("! ") else line)
    return "\n".join(lines) + "\n", done


def shquote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("page", type=pathlib.Path)
    options.add_argument("--folder")
    options.add_argument("--print", action="store_true")
    options.add_argument("--without", action="append", default=[])
    options.add_argument("--only", action="append", default=[])
    given = options.parse_args()
    headings = {heading for heading, _ in sections(given.page.read_text())}
    for heading in given.without + given.only:
        if heading not in headings:
            sys.exit(f"run_page.py: {given.page} has no section '{heading}'; it has {sorted(headings)}")
    script, done = script_of(given.page, given.without, given.only)
    if given.print:
        sys.stdout.write(script)
        return
    folder = given.folder or tempfile.mkdtemp(prefix="faltung_page_")
    os.makedirs(folder, exist_ok=True)
    code = subprocess.run(["bash", "-c", script], cwd=folder, stdin=subprocess.DEVNULL).returncode
    if code:
        sys.exit(f"run_page.py: the last command above ended with {code}")
    print(f"{given.page}: {done} blocks done in {folder}")
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
