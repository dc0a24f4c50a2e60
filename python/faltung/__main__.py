"""The command: ``python -m faltung bench ...`` is ``faltung bench ...``."""
import os
import sys

from ._command import command


def main():
    program = command()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
