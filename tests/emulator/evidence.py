#!/usr/bin/env python3
"""What is known of AMD's chips without the hardware, as the table of docs/amd.md.

  evidence.py sweep [--build BUILD] [--seconds S] [--processes N] [--first I] [--parts N] [--keep FOLDER] [--backwards]
      runs the emulator's cases in parts, side by side, until the time is over, and prints a line a chip and family:
      cases, right, wrong, not reached; then the failures.
      What takes longest comes last: the FFT's kernels. --backwards: from the last part on
      --keep: what ended and what was compiled stays in that folder, and another sweep with the same seed goes on there
  evidence.py compiled [--build BUILD]
      compiles every family's default configs for every chip, and prints how many kernels
  evidence.py table [--in PAGE] FILE...
      the table, of what those printed: kernels compiled; cases right in the emulator, of all that there are. Several
      sweeps' cases are summed, so they should be of different parts. --in: says whether the page has that table

FALTUNG_TEST_SEED draws other configs.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

TARGETS = ['gfx90a', 'gfx942', 'gfx1030', 'gfx1100', 'gfx1201']
CHIPS = {'gfx90a': 'MI210, MI250', 'gfx942': 'MI300', 'gfx950': 'MI355X', 'gfx1010': 'RX 5700',
         'gfx1030': 'RX 6800, 6900', 'gfx1100': 'RX 7900', 'gfx1103': 'Radeon 780M', 'gfx1151': 'Strix Halo',
         'gfx1201': 'RX 9070'}

LONGEST = 'fft_gpu*'  # a case takes ten times as long as another


def test(program, tests, seconds, **variables):
    """What a test program printed, or nothing where it did not end in time."""
    try:
        return subprocess.run([program, '--gtest_filter=' + tests], env=dict(os.environ, **variables), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(1, seconds)).stdout
    except subprocess.TimeoutExpired:
        return ''


def sweep(arguments):
    end = time.monotonic() + arguments.seconds
    keep = os.path.abspath(arguments.keep) if arguments.keep else tempfile.mkdtemp(prefix='faltung-sweep-')
    os.makedirs(keep, exist_ok=True)
    all_cases, counts, failures = {}, collections.defaultdict(collections.Counter), []

    def part_of(job):
        only, target, part = job
        left = end - time.monotonic()
        if left <= 0:
            return
        said = test(f'{arguments.build}/tests/emulator_tests', f'*EmulatorKernels.EveryAlgorithm/clang_{target}', left,
                    FALTUNG_TEST_FULL='1', FALTUNG_TEST_ONLY=only, FALTUNG_TEST_PART=f'{part}/{arguments.parts}',
                    FALTUNG_TEST_RECORD=f'{keep}/{target}.{part}', FALTUNG_TEST_STORE=f'{keep}/store')
        for number, family in re.findall(r'^(\d+) cases of (\S+)$', said, re.M):
            all_cases[target, family] = int(number)
        wrong = {}  # of each kernel and problem the words
        for block in re.findall(r': Failure\n(.*?)(?=^Google Test trace|^\[ )', said, re.M | re.S):
            found = re.search(r'(\w+)(/\S+ for [^,\s]+)', block)
            wrong.setdefault(found.groups() if found else ('?', ''), block)
        for words in wrong.values():
            failures.append(target + ' ' + words.strip())

    parts = [(target, part) for part in range(arguments.first, arguments.parts + 1) for target in TARGETS]
    if arguments.backwards:
        parts.reverse()
    with concurrent.futures.ThreadPoolExecutor(arguments.processes) as pool:
        list(pool.map(part_of, [(only, *part) for only in ('!' + LONGEST, LONGEST) for part in parts]))
    # Parts that were cut off said nothing: what they did is in their records.
    for target, part in parts:
        path = f'{keep}/{target}.{part}'
        for line in open(path) if os.path.exists(path) else ():
            outcome, _, kernel = line.split()[:3]
            counts[target, kernel.split('/')[0]][outcome] += 1
    if not arguments.keep:
        shutil.rmtree(keep)
    print('# chip family: cases, right, wrong, not reached; seed', os.environ.get('FALTUNG_TEST_SEED', '1'))
    for (target, family), number in sorted(all_cases.items()):
        c = counts[target, family]
        print('emulated', target, family, number, c['right'], c['wrong'], number - c['right'] - c['wrong'])
    for failure in failures:
        print('\n'.join('# ' + line for line in failure.splitlines()))
    return 1 if failures or any(c['wrong'] for c in counts.values()) else 0


def compiled(arguments):
    said = test(f'{arguments.build}/tests/unit_tests', 'Chips/PortableAmdgcn.*', 3600, FALTUNG_TEST_FULL='1')
    for chip, families in re.findall(r'^\d+ kernels for (\w+)(.*)$', said, re.M):
        for family, number in re.findall(r', (\S+) (\d+)', families):
            print('compiled', chip, family, number)
    return 0 if '[  FAILED  ]' not in said else 1


def table(arguments):
    cases, right, kernels, families = {}, collections.Counter(), {}, set()
    for path in arguments.files:
        for line in open(path):
            words = line.split()
            if line.startswith('compiled '):
                kernels[words[1], words[2]] = int(words[3])
            elif line.startswith('emulated '):
                cases[words[1], words[2]] = int(words[3])
                right[words[1], words[2]] += int(words[4])
            else:
                continue
            families.add(words[2])
    columns = sorted(families)
    lines = ['| chip | ' + ' | '.join(family.removesuffix('_gpu') for family in columns) + ' | run on silicon |',
             '|---' * (len(columns) + 2) + '|']
    for chip, card in CHIPS.items():
        cells = []
        for family in columns:
            key = chip, family
            parts = [str(kernels[key])] if key in kernels else []
            if key in cases:
                parts.append(f'{min(right[key], cases[key])} of {cases[key]}')
            cells.append('; '.join(parts) or '–')
        lines.append(f'| {chip} ({card}) | ' + ' | '.join(cells) + ' | never |')
    text = '\n'.join(lines) + '\n'
    if arguments.page is None:
        print(text, end='')
    elif text not in open(arguments.page).read():
        print(f'{arguments.page} has not this table:\n{text}')
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)
    for name in ('sweep', 'compiled'):
        commands.add_parser(name).add_argument('--build', default='build')
    run = commands.choices['sweep']
    run.add_argument('--seconds', type=float, default=600)
    run.add_argument('--processes', type=int, default=os.cpu_count())
    run.add_argument('--first', type=int, default=1)
    run.add_argument('--parts', type=int, default=200)
    run.add_argument('--keep')
    run.add_argument('--backwards', action='store_true')
    made = commands.add_parser('table')
    made.add_argument('files', nargs='+')
    made.add_argument('--in', dest='page')
    arguments = parser.parse_args()
    return {'sweep': sweep, 'compiled': compiled, 'table': table}[arguments.command](arguments)


if __name__ == '__main__':
    sys.exit(main())
