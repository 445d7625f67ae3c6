"""Compiled code on disk is used again, but not after a change of what it was compiled from."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from warmpot.transport import _compile
from warmpot.transport._part_compiler import PartLibrary

MODULE = """
from warmpot.transport._compile import kernel


@kernel
def double(x):
    return 2 * x
"""


def test_kernels_are_loaded_unless_a_file_of_the_layer_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels.py").write_text(MODULE)

    def loaded(digest: str) -> bool:
        monkeypatch.setattr(_compile, "digest_of", lambda folder: digest)
        double = runpy.run_path(str(tmp_path / "kernels.py"))["double"]
        assert double(3) == 6
        return sum(double.stats.cache_hits.values()) == 1

    assert [loaded(digest) for digest in ("one", "one", "two", "two", "one")] == [False, True, False, True, False]


@pytest.mark.parametrize("latest", [_compile.LATEST_TRIED, (0, 0)])
def test_parts_are_compiled_with_the_kernels_that_call_them_only(
    latest: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_compile, "LATEST_TRIED", latest)

    @_compile.part
    def half(x: float) -> float:
        return 0.5 * x

    @_compile.allocating_part
    def quarters(x: float) -> np.ndarray:
        return np.full(2, 0.5 * half(x))

    @_compile.kernel
    def sixth(x: float) -> float:
        return float(quarters(x).sum() / 3.0)

    assert sixth(6.0) == pytest.approx(1.0, rel=1e-15)
    for piece in (half, quarters):
        (overload,) = piece.overloads.values()
        assert isinstance(overload.library, PartLibrary) == (latest > (0, 0))  # a newer numba compiles as usual


def test_every_module_counts(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
        (folder / "one.py").write_text("x = 1")
        (folder / "two.py").write_text("y = 1")
    (folders[2] / "two.py").write_text("y = 2")
    first, same, other = (_compile.digest_of(folder) for folder in folders)
    assert first == same != other


@pytest.mark.parametrize("eps", [None, 0.3])
def test_solvers_work_where_numba_does_not_compile(eps: float | None) -> None:
    code = f"from warmpot.transport import solve_partial as s; print(s(np.eye(3), mass=.5, eps={eps}).gap < 1e-9)"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run([sys.executable, "-c", f"import numpy as np; {code}"], env=environment, capture_output=True)
    assert run.stdout == b"True\n"
