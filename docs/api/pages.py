#!/usr/bin/env python3
"""A page in the form that doxygen reads: pages.py PAGE, on standard output. Links to headings within a page and to notes, which are not
among what it reads, are their text, and a picture is its light one."""
import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text()
text = re.sub(r"\[([^\]]*)\]\((?:#|[^)\s]*\bnotes/)[^)]*\)", r"\1", text)
text = re.sub(r"</?picture>|<source[^>]*>", "", text)
print(text, end="")
