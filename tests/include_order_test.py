#!/usr/bin/env python3
"""No include points back up the road.

problem <- backend <- store <- jit <- plan <- emit <- algorithms <- finder <- network <- api <- tools: a file includes from its
own stage and the ones before. Device code stands beside the backend: it sees problem, backend and other device code.
The public headers see nothing of src. The finder names no concrete algorithm.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Of the algorithms, by the finder: their interface, and what a device was measured to do.
SEEN = ("src/algorithms/algorithm.hpp", "src/algorithms/ceilings.hpp", "src/algorithms/cpu_rates.hpp")
ROAD = ["problem", "backend", "store", "jit", "plan", "emit", "algorithms", "finder", "network", "api", "tools"]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def stage(path):
    """Where on the road a file of this repository (a path relative to its root) stands; None if not on it."""
    parts = path.split("/")
    if parts[0] == "include":
        return -1
    if parts[:2] == ["kernels", "common"]:
        return ROAD.index("problem")
    if parts[0] == "kernels":
        return ROAD.index("backend")
    if parts[0] == "src":
        return ROAD.index(parts[1] if len(parts) > 2 else "api")
    if parts[0] in ("tools", "bench"):
        return ROAD.index("tools")
    return None


def included_file(including, name):
    """The repository's file that an include means, relative to the root; None for a system header."""
    for candidate in (ROOT / name, ROOT / "include" / name, (ROOT / including).parent / name):
        if candidate.is_file():
            return str(candidate.resolve().relative_to(ROOT))
    return None


def violations(path, text, resolve=included_file):
    found = []
    for name in INCLUDE.findall(text):
        target = resolve(path, name)
        if target is None:
            if name.startswith(("src/", "kernels/", "tools/", "faltung/")):
                found.append(f"{path} includes {name}, which does not exist")
            continue
        there = stage(target)
        if there is None:
            found.append(f"{path} includes {target}, which is not on the road")
        elif there > stage(path):
            found.append(f"{path} includes {target}, which is further down the road")
    if path.startswith("src/finder/"):
        found += concrete_algorithms(path, text)
    return found


def concrete_algorithms(path, text):
    names = {p.stem for p in (ROOT / "src/algorithms").glob("*.cpp") if re.search(r"_(cpu|gpu|nki|sm90)$", p.stem)}
    names -= {"pool_cpu"}  # a step that any plan may end in, no algorithm
    found = [f"{path} includes {name}; the finder sees algorithm.hpp, ceilings.hpp and cpu_rates.hpp alone"
             for name in INCLUDE.findall(text)
             if name.startswith("src/algorithms/") and name not in SEEN]
    families = {re.sub(r"_[^_]+$", "", name) for name in names} - {"reference"}
    for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r"#\s*include.*", "", text)):
        found += [f"{path} names the algorithm {name} in \"{literal}\""
                  for name in sorted(names | families) if re.search(rf"\b{name}(\b|_)", literal)]
    found += [f"{path} names the algorithm {name}" for name in sorted(names) if re.search(rf"\b{name}\b", text)]
    return found


def self_test():
    """The check can fail: each of these breaks it."""
    here = lambda _, name: name
    assert violations("src/problem/x.cpp", '#include "src/backend/backend.hpp"', here)
    assert violations("include/faltung/x.hpp", '#include "src/problem/problem.hpp"', here)
    assert violations("kernels/cpu/x.cpp", '#  include "src/plan/plan.hpp"', here)
    assert violations("src/finder/x.cpp", '#include "src/api.cpp"', here)
    assert violations("src/finder/x.cpp", 'if (name == "reference_cpu") return;')
    assert violations("src/plan/x.cpp", '#include "tests/x.hpp"', here)
    assert not violations("src/finder/x.cpp", '#include "src/algorithms/algorithm.hpp"', here)
    assert not violations("kernels/cpu/x.cpp", '#include "src/problem/dtype.hpp"', here)


def main():
    self_test()
    files = [p for top in ("include", "src", "kernels", "tools", "bench") for p in (ROOT / top).rglob("*")
             if p.suffix in (".c", ".h", ".cpp", ".hpp", ".inc")]
    if len(files) < 30:
        sys.exit(f"only {len(files)} sources found under {ROOT}")
    found = [v for p in sorted(files) for v in violations(str(p.relative_to(ROOT)), p.read_text())]
    for violation in found:
        print(violation)
    print(f"{len(files)} files, {len(found)} includes or names that point back up the road")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
