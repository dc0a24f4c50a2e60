"""Devices, plans and choices: one engine a process, made when it is first needed."""
import os
import sys
import threading
import warnings
from collections import namedtuple

from . import _c


class FaltungWarning(UserWarning):
    """What a caller may want to know and need not act on, such as a kernel that was put into quarantine."""


class Device(namedtuple("Device", "id kind name driver features units memory_bytes")):
    """A device: ``id`` (``cpu``, ``cuda:0``, ``opencl:1``), ``kind`` (``cpu`` or ``gpu``), ``name``, ``driver``,
    ``features`` of its instruction set, ``units`` (cores or multiprocessors), ``memory_bytes``."""
    __slots__ = ()


class Report(namedtuple("Report", "kernel outcome why predicted_ms ms ms_min ms_max error_over_bound compile_ms "
                                  "workspace_bytes error_growth bound_by ceiling_pct rms_of_chain")):
    """What is known of one kernel on one problem: ``outcome`` in words (chosen, slower, declined, ...) and ``why``;
    ``predicted_ms`` by the cost model, ``ms`` the measured median (0: not measured); ``error_over_bound`` the worst element
    (-1: not verified); ``error_growth`` the bound on the error, in units of 2**-24 times the sum of the |products|;
    ``bound_by`` bytes, arithmetic or latency; ``ceiling_pct`` the share of the roofline; ``rms_of_chain`` of f32: the root mean
    square error is at most so many times that of a chain of fp32 multiply-adds (0: nothing is stated)."""
    __slots__ = ()


class Choice(namedtuple("Choice", "kernel source reports text problem device")):
    """The chosen ``kernel``, its ``source`` (lock, forced, store or model) and the ``reports``, best first, for the ``problem`` on the
    ``device``."""
    __slots__ = ()

    def __str__(self):
        return self.text


def _choice(answer, problem, device):
    kernel, source, reports, text = answer
    return Choice(kernel, source, [Report(*report) for report in reports], text, _c.canonical(problem), str(device))


_engine = None
_lock = threading.Lock()


def _find_nvrtc():
    """CUDA's run-time compiler in the site-packages of this very Python, which may not be on PATH."""
    if os.environ.get("FALTUNG_NVRTC"):
        return
    for folder in sys.path:
        for package in ("nvidia/cu13", "nvidia/cuda_nvrtc"):
            library = os.path.join(folder, package, "lib")
            names = os.listdir(library) if os.path.isdir(library) else ()  # the module glob takes half of this package's import
            found = sorted(name for name in names if name.startswith("libnvrtc.so.") and name[len("libnvrtc.so."):][:1].isdigit())
            if found:
                os.environ["FALTUNG_NVRTC"] = os.path.join(library, found[0])
                return


def _warn(line):
    warnings.warn(line, FaltungWarning, stacklevel=2)


def engine():
    """The process's engine; its store is $FALTUNG_STORE, else $XDG_CACHE_HOME/faltung, else ~/.cache/faltung."""
    global _engine
    if _engine is None:
        with _lock:
            if _engine is None:
                _find_nvrtc()
                _engine = _c.Engine(None, _warn)
    return _engine


_TRUST = {None: 0, "tested": 1, "all": 2, "none": 3}


def _patterns(given):
    return given if given is None or isinstance(given, str) else ",".join(given)


def _milliseconds(name, time):
    """A number of milliseconds, or a text such as "2s" or "500ms", as the command reads it."""
    if not isinstance(time, str):
        return float(time)
    for unit, scale in (("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("min", 6e4), ("m", 6e4)):
        if time.endswith(unit):
            try:
                return float(time[:-len(unit)]) * scale
            except ValueError:
                break
    raise _c.BadProblem(f"{name} is '{time}'; write a number of milliseconds, or a time such as '2s' or '500ms'")


def _question(problem, device="cpu", threads=0, workspace_limit=None, deterministic=True, only=None, skip=None, budget=2000,
              trust=None, deadline=0, worker=None, progress=None, **unknown):
    if unknown:
        raise TypeError(f"a request has no {' and no '.join(unknown)}; it has threads, workspace_limit, deterministic, only, skip, "
                        f"trust, deadline and worker")
    if trust not in _TRUST:
        raise _c.BadProblem(f"trust is {trust!r}; it is one of 'tested', 'all', 'none'")
    if workspace_limit is not None and not (hasattr(workspace_limit, "__index__") and 0 <= workspace_limit < 1 << 63):
        raise _c.BadProblem(f"workspace_limit is {workspace_limit!r}; it is a number of bytes, or None for no limit")
    return (problem, str(device), threads, -1 if workspace_limit is None else workspace_limit, bool(deterministic),
            _patterns(only), _patterns(skip), _milliseconds("budget", budget), _TRUST[trust], _milliseconds("deadline", deadline),
            worker, progress)


def devices():
    """The devices of this machine, as a list of :class:`Device`; the CPU is the first. Wakes every driver."""
    _find_nvrtc()
    return [Device(*d[:4], tuple(d[4].split()), *d[5:]) for d in _c.devices()]


def plan(problem, device="cpu", **request):
    """A :class:`Plan` for a problem, such as ``"fwd:n4c64h64w64k64r3s3:pad1:bias:relu"``: the store's answer, else the cost
    model's. It is called with arrays::

        y = plan(x, w, b)                 # fwd: N C H W, K C/groups R S, K -> N K P Q
        plan(x, w, b, residual, out=y)    # as the problem has them
        dx = plan(dy, w)                  # bwd_d, the gradient of the input
        dw = plan(x, dy)                  # bwd_w, the gradient of the weights

    ``:nhwc`` in the problem means channels_last strides, of arrays whose shape is still N C H W. ``stream`` (an address) is
    the CUDA stream; without it PyTorch's current one, or else the default one.

    Request: ``threads`` (0: all), ``workspace_limit`` (bytes), ``deterministic``, ``only`` and ``skip`` (patterns of kernel
    names), ``trust`` (tested, all, none), ``deadline`` (milliseconds, or "3s"; of a run on trial), ``worker`` (the path of
    the faltung command). Raises BadProblem or Unsupported; may be called from many threads."""
    from ._functional import empty_strided
    made = engine().plan(*_question(problem, device, **request))
    made.allocate = empty_strided
    return made


def find(problem, device="cpu", budget="2s", **request):
    """Measures the kernels for a problem within the budget (milliseconds, or "2s"), verifies what may win, and stores the
    result, which later plans use. Returns a :class:`Choice`. Ctrl-C ends it, and what was measured by then is kept;
    ``progress(done, total, kernel)`` is called before each trial, and ends the find by returning False. The rest of the
    request is that of :func:`plan`."""
    return _choice(engine().find(*_question(problem, device, budget=budget, **request)), problem, device)


def explain(problem, device="cpu", **request):
    """One report for each algorithm: chosen, slower by how much, or why not. Measures no kernel. Returns a
    :class:`Choice`; print it."""
    return _choice(engine().explain(*_question(problem, device, **request)), problem, device)
