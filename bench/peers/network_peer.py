"""What the adapters to engines for whole networks share: how a model is timed, and the requests of the protocol (docs/networks.md)."""
import collections
import pathlib
import statistics
import sys
import time


Request = collections.namedtuple("Request", "threads device dtype math model")  # in the order of their words


class NetworkPeer:
    """An engine's adapter has prepare(request, sizes), which says what it runs; run(), once; and compute(inputs), arrays by name to
    a list of the results."""
    devices = ("cpu",)  # kinds that it runs on

    def __init__(self, name):
        self.name = name

    def network(self, words):
        """threads=N device=ID dtype=T math=M model=FILE NAME=1x3x224x224 ..."""
        count = len(Request._fields)
        request = Request(*(word.split("=", 1)[1] for word in words[:count]))
        request = request._replace(threads=int(request.threads))
        options = [word.rsplit("=", 1) for word in words[count:]]
        sizes = {name: [int(size) for size in sizes.split("x")] if sizes else [] for name, sizes in options}
        if request.device.partition(":")[0] not in self.devices:
            raise ValueError(f"it runs networks on devices {' and '.join(self.devices)} alone, and beside {request.device} it would be no peer")
        self.names = list(sizes)
        about = self.prepare(request, sizes)
        self.run()
        return about

    def outputs(self, folder):
        """On input0.npy, ... of the folder, in the order in which `network` names them; its results are output0.npy, ..."""
        import numpy
        folder = pathlib.Path(folder)
        inputs = {name: numpy.load(folder / f"input{i}.npy") for i, name in enumerate(self.names)}
        for i, result in enumerate(self.compute(inputs)):
            numpy.save(folder / f"output{i}.npy", result)
        return "done"

    def once(self):
        begin = time.perf_counter()
        self.run()
        return 1000 * (time.perf_counter() - begin)

    def time(self, seconds):
        times, end = [], time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            times.append(self.once())
        return f"ms {statistics.median(times)} {min(times)} {max(times)} {len(times)}"

    def serve(self, hello):
        print(f"peer 1 {hello}", flush=True)
        self.answer(sys.stdin)

    def answer(self, lines):
        for line in lines:
            words = line.split()
            try:
                if words[0] == "network":
                    answer = "ready " + self.network(words[1:])
                elif words[0] == "run":
                    answer = self.time(float(words[1]))
                elif words[0] == "outputs":
                    answer = self.outputs(line.split(maxsplit=1)[1].rstrip("\n"))
                elif words[0] == "prepare":
                    answer = f"declined it runs whole networks alone: faltung network bench --vs {self.name}"
                else:
                    answer = f"failed: unknown request '{words[0]}'"
            except Exception as error:  # whatever it throws is one network's failure, not the bench's
                answer = "declined " + " ".join(str(error).split())[:300]
            print(answer, flush=True)


def floats_alone(name, kind):
    return ValueError(f"its input {name} is of {kind}, and this adapter makes floats alone")


def end_without(name, library, error):
    sys.exit(f"faltung-peer-{name}: {sys.executable}: {error}; it needs {library} (the python3 of an environment that has it, first in PATH)")
