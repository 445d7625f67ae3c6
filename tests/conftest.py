"""Fixtures shared by all tests."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import typer.testing
from hypothesis import HealthCheck, settings

# Fabric reads what every installed package declares, each time it is made: a third of a short training.
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)
# Typer builds all commands again for each call in a test: nine tenths of a short one.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# Nothing here may depend on the speed of the machine: no deadline, and no check whether examples are made fast enough.
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile("dev", deadline=None, suppress_health_check=UNCHECKED)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, max_examples=30)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

SLOW = (
    "test_bounds_and_choices.py::test_a_sweep_is_not_below_source_only",
    "test_bounds_and_choices.py::test_training_for_the_bound_proves_something",
    "cli/test_sweep.py::test_ctrl_c_ends_the_workers_at_once_and_the_sweep_can_be_resumed",
    "select/test_study.py::test_workers_find_the_same_though_one_is_killed",
)
"""Long tests of what a shorter one tests too, or of what changes seldom: `make test-all` runs them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(name in item.nodeid for name in SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the classes present, 2 instead of 12: most of a short training, and many tests do not look at them."""
    from warmpot.weights import estimate_presence

    for module in ("methods.alternation", "methods.warmpot", "train.fitting"):
        patched = functools.partial(estimate_presence, simulations=2)
        monkeypatch.setattr(f"warmpot.{module}.estimate_presence", patched)


RUN_UNTIL = """
import importlib, signal, sys

number, (module, _, name) = int(sys.argv.pop(1)), sys.argv.pop(1).partition(":")
*owners, name = name.split(".")
owner = importlib.import_module(module)
for part in owners:
    owner = getattr(owner, part)
real = getattr(owner, name)


def signalling(*args, **kwargs):
    result = real(*args, **kwargs)
    signal.raise_signal(number)
    return result


setattr(owner, name, signalling)
from warmpot.cli import main
main()
"""


class Nursery:
    """Children that start at once, in a process that has imported the heavy packages; see ``nursery.py``."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).parent / "nursery.py")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)
        self.children = 0

    def ask(self, **request: Any) -> Any:
        """Send a request and return the reply."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, code: str, *words: str, folder: Path, screen: str | None = None, **environment: str) -> Child:
        """Start ``python -c CODE WORDS`` in a folder, with its output in files there, or on the terminal `screen`."""
        self.children += 1
        files = [str(folder / f".output-{self.children}.{end}") for end in ("out", "err")]
        request = {"code": code, "words": words, "folder": str(folder), "files": [os.devnull, *files]}
        if screen is not None:
            request["files"] = [screen] * 3
        return Child(self, self.ask(**request, environment={**os.environ, **environment}), *map(Path, files))

    def run(self, code: str, *words: str, folder: Path, **environment: str) -> tuple[int, str, str]:
        """Run it to its end: exit code, output and errors."""
        child = self.start(code, *words, folder=folder, **environment)
        return child.wait(), child.out.read_text(), child.err.read_text()

    def run_until(self, number: int, point: str, *words: str, folder: Path) -> tuple[int, str, str]:
        """Run the command line and raise a signal in it when the function ``module:name`` returns."""
        return self.run(RUN_UNTIL, str(int(number)), point, *words, folder=folder)

    def launch(self, code: str, *words: str, folder: Path) -> list[str]:
        """Run it as two processes of one group, as ``torchrun`` does; return what each of them printed.

        `torchrun` itself: tests/unit/train/test_images.py.
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
        both = [self.start(code, *words, folder=folder, **group, RANK=k, LOCAL_RANK=k) for k in "01"]
        codes = [child.wait() for child in both]
        assert codes == [0, 0], both[0].err.read_text() + both[1].err.read_text()
        return [child.out.read_text() for child in both]


@dataclass
class Child:
    """A process of a `Nursery`, the head of its own session."""

    nursery: Nursery
    pid: int
    out: Path
    err: Path
    code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.code is None:
            self.code = self.nursery.ask(poll=self.pid)
        return self.code

    def wait(self) -> int:
        """Wait for its end and return the exit code."""
        self._wait(lambda: self.poll() is not None)
        assert self.code is not None
        return self.code

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Wait until something has happened; it must run until then."""
        self._wait(lambda: happened() or self.poll() is not None)
        assert self.code is None, f"a child ended too early: {self.err.read_text()}"

    def _wait(self, happened: Callable[[], bool]) -> None:
        while not happened():  # without a limit: on a busy machine everything takes long
            time.sleep(0.02)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Child processes that need not import torch again, which takes seconds."""
    if os.name != "posix":
        pytest.skip("forks of POSIX")
    parent = Nursery()
    with parent.process:
        yield parent


Maker = Callable[[Any], Any]


@pytest.fixture(params=["numpy-float64", "torch-float64", "torch-float32"])
def make(request: pytest.FixtureRequest) -> Maker:
    """Return a function that turns an array into the library and dtype under test."""
    library, dtype = request.param.split("-")
    if library == "numpy":
        return lambda x: np.asarray(x, dtype=dtype)
    return lambda x: torch.as_tensor(np.asarray(x), dtype=getattr(torch, dtype))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data sets, or skip."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "shared" / "data"
        if folder.is_dir():
            return folder
    return pytest.skip("the real data sets (../shared/data) are not on this machine")


@pytest.fixture
def benchmark_script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import a module of the benchmarks, which are scripts, not a package; forgotten after the test."""
    folder = str(Path(__file__).resolve().parents[1] / "benchmarks")
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
            del sys.modules[name]
