#!/usr/bin/env python3
"""The public headers' comments in the form that doxygen reads: comments.py HEADER, on standard output.

A comment above a declaration belongs to it, one behind a member, with the lines below that begin in its column, to that; lines of
dashes part sections and belong to nothing.
"""
import re
import sys


def of_cpp(lines):
    column = None  # of a comment behind a member that goes on
    for line in lines:
        code, comment = re.match(r"^(.*?)(//.*)?$", line).groups()
        if not comment or re.match(r"^// -{20,}|^//$", comment):
            column = None
            yield line
        elif code.strip():
            column = len(code) if not code.rstrip().endswith("{") else None
            yield f"{code}///<{comment[2:]}" if column is not None else line
        elif column == len(code):
            yield f"{code}///<{comment[2:]}"
        else:
            column = None
            yield f"{code}///{comment[2:]}"


def of_c(text):
    def marked(match):
        begin = text.rfind("\n", 0, match.start()) + 1
        before = text[begin:match.start()]
        if match[0].startswith("/* ------"):
            return match[0]
        return ("/**<" if before.strip() else "/**") + match[0][2:]
    return re.sub(r"/\*.*?\*/", marked, text, flags=re.S)


def main():
    name = sys.argv[1]
    text = open(name, encoding="utf-8").read()
    sys.stdout.write(of_c(text) if name.endswith(".h") else "\n".join(of_cpp(text.split("\n"))))


if __name__ == "__main__":
    main()
