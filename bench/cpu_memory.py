#!/usr/bin/env python3
"""The most memory that whole networks have resident on the CPU, in MB: by how much faltung's process grows from its start on, ONNX Runtime's and
OpenVINO's from their import on; each loads a network and runs it once.

    bench/cpu_memory.py [--networks resnet50,ocr_rec] [--batches 1,8] [--threads 2]     (after ./dev build)
"""
import argparse
import os
import pathlib
import re
import subprocess

import cpu_networks


def most_mb(process):
    """Of what it has had so far."""
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{process}/status").read_text()).group(1)) / 1e3


def whole_mb(*words):
    """Of a command."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    return used.ru_maxrss / 1e3 if status == 0 else float("nan")


def ours_mb(program, file, size, threads):
    return whole_mb(program, "network", "run", file, "--size", size, "--threads", threads) - whole_mb(program, "--version")


def peer_mb(name, venv, file, size, threads):
    environment = dict(os.environ, PATH=f"{venv / 'bin'}:{os.environ['PATH']}")
    with subprocess.Popen([cpu_networks.ROOT / "build" / "bench" / "peers" / f"faltung-peer-{name}"], env=environment, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as peer:
        peer.stdout.readline()
        before = most_mb(peer.pid)
        print(f"network threads={threads} model={file} {size}", file=peer.stdin, flush=True)
        done = peer.stdout.readline().startswith("ready")
        return most_mb(peer.pid) - before if done else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(cpu_networks.NETWORKS))
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--faltung", type=pathlib.Path, default=cpu_networks.ROOT / "build" / "tools" / "faltung")
    args = parser.parse_args()
    folder, venv = (cpu_networks.ROOT / "build" / name for name in ("networks", "venv-networks"))
    folder.mkdir(parents=True, exist_ok=True)
    packages = cpu_networks.need_venv(venv)
    print(f"{'network':22} {'ours':>7} " + " ".join(f"{peer:>12}" for peer in cpu_networks.PEERS), flush=True)
    for name in args.networks.split(","):
        file = cpu_networks.model_file(name, packages, folder, venv)
        for batch in args.batches.split(","):
            size = cpu_networks.NETWORKS[name][1].replace("=Nx", f"={batch}x")
            if batch != "1" and size == cpu_networks.NETWORKS[name][1]:
                continue
            peers = [peer_mb(peer, venv, file, size, args.threads) for peer in cpu_networks.PEERS]
            print(f"{name + ' b' + batch:22} {ours_mb(args.faltung, file, size, args.threads):7.0f} " + " ".join(f"{mb:12.0f}" for mb in peers),
                  flush=True)


if __name__ == "__main__":
    main()
