#!/usr/bin/env python3
"""Known devices' two phases: what is compiled beforehand is not compiled again, by engine or worker, only tried; a pack that
cannot be used is a miss and one warning; code for a GPU that is not here is the same each time, and the script makes a pack.

known_devices_test.py FALTUNG: PoCL stands in for the device. Parts whose driver or compiler is missing are left out.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FALTUNG = str(pathlib.Path(sys.argv[1]).resolve())
POCL = "/etc/OpenCL/vendors/pocl.icd"
PROBLEM = "fwd:n1c8h9w10k16r3s3:pad1"
ONE_KERNEL = ["--kernel", "direct_gpu*"]
errors = []


def check(right, what):
    if not right:
        errors.append(what)
        print("FAILED:", what)


class Machine:
    """A store of its own."""

    def __init__(self, folder, name, known="none"):
        self.store = folder / name
        self.env = dict(os.environ, FALTUNG_STORE=str(self.store), FALTUNG_KNOWN_DEVICES=str(known), OCL_ICD_VENDORS=POCL,
                        FALTUNG_WORKER=FALTUNG, FALTUNG=FALTUNG)

    def run(self, *words, program=FALTUNG, **more):
        done = subprocess.run([program, *words], env=dict(self.env, **more), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
        self.warnings = [line for line in done.stderr.splitlines() if "warning" in line]
        check(done.returncode == 0, f"{' '.join(words)}: {done.returncode}, {done.stderr}")
        return done.stdout

    def count(self, kind):
        return len(list((self.store / kind).glob("*"))) if (self.store / kind).exists() else 0

    def payloads(self, kind):
        return sorted(re.search(r'"text": (.*)', file.read_text())[1] for file in (self.store / kind).glob("*"))


def on_pocl(folder):
    prepare = ["prepare", "--device", "opencl:0", "--jobs", "1", *ONE_KERNEL, PROBLEM]
    maker = Machine(folder, "maker")
    said = maker.run(*prepare)
    check("1 of 1 problems, 1 kernels ready" in said, said)
    check(maker.count("verified") == 1 and maker.count("kernel") > 0 and maker.count("ceilings") == 1, "what was made is not stored")
    pack, both = folder / "code.pack", folder / "both.pack"
    maker.run("store", "export", str(both))
    maker.run("store", "clear", "verified")
    maker.run("store", "export", str(pack))

    user = Machine(folder, "user", pack)
    user.run(*prepare)
    check(user.count("verified") == 1, "it was not tried")
    check(user.count("kernel") == 0, "the engine or its worker compiled again")
    check(not user.warnings, user.warnings)

    spared = Machine(folder, "spared", both)
    spared.run(*prepare)
    check(spared.count("verified") == spared.count("kernel") == 0, "it was tried or compiled again")

    whole = both.read_bytes()
    for name, content in (("truncated", whole[:-7]), ("later", whole.replace(b"-pack 3", b"-pack 9", 1)),
                          ("tampered", whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])):
        bad = folder / f"{name}.pack"
        bad.write_bytes(content)
        machine = Machine(folder, name, bad)
        machine.run("explain", "--device", "opencl:0", *ONE_KERNEL, PROBLEM)  # which looks for verdicts, once
        check(len(machine.warnings) == 1 and str(bad) in machine.warnings[0], f"{name}: {machine.warnings}")
        machine.run(*prepare)
        check(machine.count("verified") == 1, f"{name}: it was not tried")


def by_nvrtc(folder):
    prepare = ["prepare", "--device", "nvrtc:sm_90a", "n8c64h28w28k64r3s3:pad1:f16:nhwc", "bwd_w:n8c64h28w28k64r3s3:pad1:f16:nhwc"]
    machines = [Machine(folder, f"nvrtc{i}") for i in range(2)]
    for machine in machines:
        machine.run(*prepare)
        check(machine.count("kernel") > 1 and machine.count("verified") == machine.count("ceilings") == 0, "it compiles, and no more")
    check(machines[0].payloads("kernel") != [] and [p.split(" ")[0] for p in machines[0].payloads("kernel")] ==
          [p.split(" ")[0] for p in machines[1].payloads("kernel")], "the same source gave other code")
    keys = " ".join(file.read_text() for file in (machines[0].store / "kernel").glob("*"))
    check(re.search(r'"key": "cuda-sm_90a-nvrtc\d+\.\d+\\n', keys), "the key is not the architecture's and the compiler's alone")
    pack = folder / "nvrtc.pack"
    machines[0].run("store", "export", str(pack))
    for keeps, kernels in (([], 0), (["--keep-shipped"], machines[0].count("kernel"))):
        machine = Machine(folder, f"kept{kernels}", pack)
        said = machine.run(*prepare, *keeps)
        check(" 0 compiled now" in said and machine.count("kernel") == kernels, f"{keeps}: {machine.count('kernel')} kept, {said}")
    # The same for H100 and H200: no line of it is the device's or the driver's.
    check("H200" not in keys and "driver" not in keys, "the key has a device or its driver")


def the_script(folder):
    machine = Machine(folder, "script")
    pack = folder / "made.pack"
    some = dict(FOLDER=str(folder / "phases"), PACK=str(pack), MATHS="f16", DIRECTIONS="fwd", JOBS="1", WITHIN="1ms")
    machine.run("compile", program="bench/known_devices.sh", **some)
    check((folder / "phases" / "code.pack").exists(), "phase one leaves no code")
    problems = (folder / "phases" / "problems.csv").read_text().splitlines()
    check(problems[0] == "name,problem" and len(problems) > 1000, f"{len(problems)} problems")
    if pathlib.Path(POCL).exists():
        said = machine.run("opencl:0,opencl:0", program="bench/known_devices.sh", **some)
        check(pack.read_bytes().startswith(b"faltung-pack 3\n"), "phase two leaves no pack")
        shares = [int(share) for share in re.findall(r"of (\d+) problems,", said)]
        check(len(shares) == 2 and sum(shares) == len(problems) - 1 and abs(shares[0] - shares[1]) < 2, f"not shared: {said}")


with tempfile.TemporaryDirectory() as scratch:
    scratch = pathlib.Path(scratch)
    listed = subprocess.run([FALTUNG, "prepare", "--device", "nvrtc:sm_90a", PROBLEM, "--problems"], capture_output=True, text=True)
    check(listed.stdout == f'name,problem\ngiven_problem,"{PROBLEM}:f32:nchw"\n', listed.stdout)
    if pathlib.Path(POCL).exists():
        on_pocl(scratch)
    no_compiler = subprocess.run([FALTUNG, "prepare", "--device", "nvrtc:sm_90a", PROBLEM], capture_output=True, text=True,
                                 env=dict(os.environ, FALTUNG_STORE=str(scratch / "asked"), FALTUNG_KNOWN_DEVICES="none"))
    if no_compiler.returncode == 0:
        by_nvrtc(scratch)
        the_script(scratch)
    else:
        check("libnvrtc" in no_compiler.stderr, no_compiler.stderr)
        print("no NVRTC: only PoCL's part was run")
print(f"known_devices_test: {len(errors)} failed")
sys.exit(1 if errors else 0)
