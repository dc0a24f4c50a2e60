"""bench/peers/network_peer.py: what adapters to other engines for whole networks answer, by one that doubles its input."""
import pathlib
import sys

import numpy
import pytest

PEERS = pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"
if not PEERS.exists():
    pytest.skip("the tests lie outside of the repository", allow_module_level=True)
sys.path.insert(0, str(PEERS))
import network_peer  # noqa: E402


class Doubling(network_peer.NetworkPeer):
    def prepare(self, request, sizes):
        self.asked, self.sizes, self.runs = request, sizes, 0
        return "twice"

    def run(self):
        self.runs += 1

    def compute(self, inputs):
        return [2 * x for x in inputs.values()]


def answers(capsys, peer, *lines):
    peer.answer(lines)
    return capsys.readouterr().out.splitlines()


def request(device="cpu"):
    return f"network threads=3 device={device} dtype=f32 math=fast model=a=b.onnx x=1x3x4 input:0= time=2=5\n"


def test_it_is_told_all_of_the_request(capsys):
    peer = Doubling("doubling")
    assert answers(capsys, peer, request()) == ["ready twice"]
    assert peer.asked == (3, "cpu", "f32", "fast", "a=b.onnx")
    assert peer.sizes == {"x": [1, 3, 4], "input:0": [], "time=2": [5]} and peer.runs == 1


def test_times_and_results(capsys, tmp_path):
    peer = Doubling("doubling")
    numpy.save(tmp_path / "input0.npy", numpy.float32([1, 2]))
    for i in (1, 2):
        numpy.save(tmp_path / f"input{i}.npy", numpy.float32([3]))
    said = answers(capsys, peer, request(), "run 0.01\n", f"outputs {tmp_path}\n", "outputs /nowhere\n", "sing\n")
    assert said[0] == "ready twice" and said[2] == "done" and said[4] == "failed: unknown request 'sing'"
    word, median, least, most, runs = said[1].split()
    assert word == "ms" and 0 <= float(least) <= float(median) <= float(most) and int(runs) == peer.runs - 1
    assert said[3].startswith("declined ") and "/nowhere" in said[3]
    assert numpy.load(tmp_path / "output0.npy").tolist() == [2, 4]


def test_beside_a_gpu_the_cpu_is_no_peer(capsys):
    said, = answers(capsys, Doubling("doubling"), request("cuda:0"))
    assert said == "declined it runs networks on devices cpu alone, and beside cuda:0 it would be no peer"


def test_a_convolution_is_declined(capsys):
    said, = answers(capsys, Doubling("doubling"), "prepare device=cpu fwd:n1c1h1w1k1r1s1\n")
    assert said == "declined it runs whole networks alone: faltung network bench --vs doubling"
