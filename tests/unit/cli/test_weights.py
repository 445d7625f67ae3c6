"""The command ``warmpot weights`` and the frame of the command line."""

from __future__ import annotations

import csv
import errno
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from typer.testing import CliRunner, Result

import warmpot
import warmpot.transport
from warmpot.cli import app, main
from warmpot.errors import NotConvergedError
from warmpot.transport import solve_partial

BETA, ALPHA = 0.35, 0.8
rng = np.random.default_rng(0)
XS = rng.normal(size=(23, 3))
XT = rng.normal(size=(17, 3)) + np.array([0.5, 0.0, 0.0])


def save(path: Path, x: np.ndarray) -> Path:
    if path.suffix == ".npz":
        np.savez(path, X=x)
    elif path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(pa.table({f"f{j}": column for j, column in enumerate(x.T)}), path)
    else:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        header = delimiter.join(f"f{j}" for j in range(x.shape[1]))
        np.savetxt(path, x, fmt="%.17g", delimiter=delimiter, header=header, comments="")
    return path


class Files:
    """A folder with two feature files, and the command run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source, self.target = save(folder / "s.npz", XS), save(folder / "t.npz", XT)
        self.out = folder / "weights.csv"

    def run(self, *flags: object, **given: object) -> Result:
        """Run the command; ``source=``, ``target=`` and ``out=`` replace the files."""
        files = {"source": self.source, "target": self.target, "out": self.out} | given
        arguments = [word for name, value in files.items() for word in (f"--{name}", str(value))]
        return CliRunner().invoke(app, ["weights", *arguments, *map(str, flags)])

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def read(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Weight and normalized weight of each domain; the form of the file is checked on the way."""
    with open(path, newline="") as stream:
        table = list(csv.reader(stream))
    assert table[0] == ["domain", "row", "weight", "normalized"]
    found = {}
    for domain in ("source", "target"):
        rows = [row[1:] for row in table[1:] if row[0] == domain]
        assert [int(row[0]) for row in rows] == list(range(len(rows)))
        found[domain] = (np.array([float(row[1]) for row in rows]), np.array([float(row[2]) for row in rows]))
    assert len(table) == 1 + sum(len(weight) for weight, _ in found.values())
    return found


def expected(xs: np.ndarray, xt: np.ndarray, beta: float, alpha: float) -> Any:
    return solve_partial(cdist(xs, xt), np.full(len(xs), 1 / (beta * len(xs))), mass=alpha)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv", ".tsv", ".parquet"])
def test_the_weights_are_those_of_the_dense_solver(files: Files, suffix: str) -> None:
    source, target = save(files.folder / f"a{suffix}", XS), save(files.folder / f"b{suffix}", XT)
    result = files.run(source=source, target=target)
    assert result.exit_code == 0, result.output
    found, truth = read(files.out), expected(XS, XT, BETA, ALPHA)
    np.testing.assert_allclose(found["source"][0], truth.p, atol=1e-12)
    np.testing.assert_allclose(found["target"][0], truth.q, atol=1e-12)


@pytest.mark.parametrize(("beta", "alpha"), [(0.35, 0.8), (1.0, 1.0), (0.1, 0.05), (0.5, 1.0)])
def test_normalized_is_the_share_of_the_capacity(files: Files, beta: float, alpha: float) -> None:
    assert files.run("--beta", beta, "--alpha", alpha, "--quiet").exit_code == 0
    found, truth = read(files.out), expected(XS, XT, beta, alpha)
    for domain, weight, top in (("source", truth.p, 1 / (beta * len(XS))), ("target", truth.q, 1 / len(XT))):
        np.testing.assert_allclose(found[domain][0], weight, atol=1e-12)
        np.testing.assert_allclose(found[domain][1], weight / top, atol=1e-9)
        assert found[domain][1].min() >= 0
        assert found[domain][1].max() <= 1
        assert found[domain][0].sum() == pytest.approx(alpha)


def test_normalize_features_scales_rows_and_leaves_zeros(files: Files) -> None:
    scales = 10.0 ** np.linspace(-200, 200, len(XS))[:, None]  # their squares are no floats
    directions = XS / np.linalg.norm(XS, axis=1, keepdims=True)
    directions[3] = 0
    unit = XT / np.linalg.norm(XT, axis=1, keepdims=True)
    result = files.run("--normalize-features", source=save(files.folder / "scaled.npy", directions * scales))
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(read(files.out)["source"][0], expected(directions, unit, BETA, ALPHA).p, atol=1e-12)
    assert files.run("--no-normalize-features").exit_code == 0
    np.testing.assert_allclose(read(files.out)["source"][0], expected(XS, XT, BETA, ALPHA).p, atol=1e-12)


def test_little_memory_gives_the_same(files: Files) -> None:
    assert files.run("--max-memory", 1e-9).exit_code == 0
    np.testing.assert_allclose(read(files.out)["source"][0], expected(XS, XT, BETA, ALPHA).p, atol=1e-12)


def test_a_tolerance_reaches_the_solver(files: Files) -> None:
    rng = np.random.default_rng(1)
    xs, xt = rng.normal(size=(900, 12)), rng.normal(size=(300, 12)) * 0.8 + 0.5
    paths = {"source": save(files.folder / "s.npy", xs), "target": save(files.folder / "t.npy", xt)}
    assert files.run("--tol", 0.05, "--beta", 0.4, "--alpha", 1.0, **paths).exit_code == 0
    coarse = warmpot.transport.solve_partial_points(xs, xt, beta=0.4, mass=1.0, tol=0.05)
    np.testing.assert_allclose(read(files.out)["source"][0], coarse.p, atol=1e-12)
    assert (
        np.abs(coarse.p - warmpot.transport.solve_partial_points(xs, xt, beta=0.4, mass=1.0).p).max() > 1e-6
    )  # another plan


def test_the_summary_shows_the_certificate_and_the_rows(files: Files) -> None:
    result = files.run()
    truth = expected(XS, XT, BETA, ALPHA)
    said = dict(re.findall(r"^(\w+) +(\S+)", result.stdout, flags=re.MULTILINE))
    assert float(said["value"]) == pytest.approx(truth.value, rel=1e-5)
    assert float(said["slope"]) == pytest.approx(truth.slope, rel=1e-5)
    assert 0 <= float(said["gap"]) < 1e-9
    assert said["status"] == "OPTIMAL"
    assert {"time", "Wrote"} <= said.keys()
    zero = np.mean(read(files.out)["source"][1] == 0)
    assert re.search(rf"^source +{len(XS)} +{zero:.1%} ", result.stdout, flags=re.MULTILINE)
    assert re.search(rf"^target +{len(XT)} ", result.stdout, flags=re.MULTILINE)


def test_brackets_in_names_are_printed_literally(files: Files) -> None:
    result = files.run(source=save(files.folder / "[bold]s[red].npz", XS), out=files.folder / "[w].csv")
    assert "[bold]s[red].npz" in result.stdout
    assert "[w].csv" in result.stdout
    result = files.run(source=files.folder / "[/red].npz")
    assert "[/red].npz" in result.stderr


@pytest.mark.parametrize("flag", ["--quiet", "-q"])
def test_quiet_prints_nothing(files: Files, flag: str) -> None:
    result = files.run(flag)
    assert (result.exit_code, result.output) == (0, "")
    assert files.out.exists()


def test_progress_lines_go_to_stderr_and_logging_is_left_as_it_was(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warmpot._progress.LINE_EVERY_SECONDS", 0.0)
    logger = logging.getLogger("warmpot")
    before = (logger.level, list(logger.handlers))
    assert "exact plan: " in files.run().stderr
    assert files.run("--quiet").output == ""
    assert (logger.level, logger.handlers) == before


def test_short_out_flag_and_an_old_file(files: Files) -> None:
    files.out.write_text("old")
    arguments = ["--source", files.source, "--target", files.target, "-o", files.out]
    assert CliRunner().invoke(app, ["weights", *map(str, arguments)]).exit_code == 0
    assert set(read(files.out)) == {"source", "target"}
    assert files.names() == {"s.npz", "t.npz", "weights.csv"}


def test_a_link_is_written_through(files: Files) -> None:
    real = files.folder / "real"
    real.mkdir()
    files.out.symlink_to(real / "w.csv")
    assert files.run().exit_code == 0
    assert files.out.is_symlink()
    assert [path.name for path in real.iterdir()] == ["w.csv"]


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX files")
def test_the_file_has_the_mode_of_any_new_file(files: Files) -> None:
    assert files.run().exit_code == 0
    plain = files.folder / "plain"
    plain.touch()
    assert files.out.stat().st_mode == plain.stat().st_mode


def hard_link(files: Files) -> Path:
    link = files.folder / "link.csv"
    os.link(files.source, link)
    return link


def circle(files: Files) -> Path:
    link = files.folder / "circle.csv"
    link.symlink_to(link)
    return link


BAD: dict[str, tuple[list[object], Callable[[Files], dict[str, object]], str]] = {
    "beta": (["--beta", 1.5], lambda files: {}, r"--beta: got 1\.5; allowed: 0 < --beta <= 1"),
    "beta NaN": (["--beta", "nan"], lambda files: {}, "--beta: got nan"),
    "alpha": (["--alpha", 0], lambda files: {}, r"--alpha: got 0\.0"),
    "tolerance": (["--tol", 0.5], lambda files: {}, r"--tol: got 0\.5; allowed: 0 < --tol <= 0\.1"),
    "memory": (["--max-memory", -1], lambda files: {}, "--max-memory: .*GiB"),
    "missing": ([], lambda files: {"source": files.folder / "none.npz"}, "none.npz: got No such file"),
    "format": ([], lambda files: {"target": __file__}, "got suffix '.py'"),
    "NaN": ([], lambda files: {"source": save(files.folder / "n.npy", XS * np.nan)}, "n.npy: got 69 non-finite"),
    "width": (
        [],
        lambda files: {"target": save(files.folder / "w.npy", XT[:, :2])},
        "w.npy: got 2 columns; allowed: 3",
    ),
    "out is the source": ([], lambda files: {"out": files.source}, "--out: .*which is an input"),
    "out is the target": ([], lambda files: {"out": files.folder / "." / "t.npz"}, "--out: .*which is an input"),
    "out is linked": ([], lambda files: {"out": hard_link(files)}, "--out: .*which is an input"),
    "out is a folder": ([], lambda files: {"out": files.folder}, "--out: .*a directory"),
    "out is a device": ([], lambda files: {"out": os.devnull}, "--out: .*a pipe or device"),
    "out goes in circles": ([], lambda files: {"out": circle(files)}, "--out: got "),
    "out has no folder": ([], lambda files: {"out": files.folder / "no" / "w.csv"}, "--out: got folder .*mkdir -p"),
    "out is too long": ([], lambda files: {"out": files.folder / ("x" * 300)}, "--out: got .*too long"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_error_is_one_line_and_leaves_nothing(files: Files, case: str) -> None:
    flags, prepare, message = BAD[case]
    given = prepare(files)
    before = {path.name: path.lstat().st_mtime_ns for path in files.folder.iterdir()}
    result = files.run(*flags, **given)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert re.fullmatch(rf"(reading .*\n)?error: .*{message}.*\n", result.stderr)
    assert {path.name: path.lstat().st_mtime_ns for path in files.folder.iterdir()} == before


def test_a_folder_that_may_not_be_written_is_refused_first(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # as root every folder may be written
    files.source.write_bytes(b"never read")
    result = files.run()
    assert result.exit_code == 2
    assert "a folder you may write to" in result.stderr


@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize(("raised", "code"), [(OSError(errno.ENOSPC, "No space left on device"), 2),
                                              (KeyboardInterrupt(), 130)])  # fmt: skip
def test_a_broken_write_leaves_the_old_file_or_none(
    files: Files, monkeypatch: pytest.MonkeyPatch, old: str | None, raised: BaseException, code: int
) -> None:
    def replace(draft: Path, out: Path) -> None:
        assert draft.parent == out.parent, "a move from another folder is not atomic"
        assert draft.exists()
        raise raised

    if old:
        files.out.write_text(old)
    before = files.names()
    monkeypatch.setattr(os, "replace", replace)
    result = files.run()
    assert result.exit_code == code
    assert ("No space left on device" if code == 2 else "interrupted") in result.stderr
    assert files.names() == before
    assert old is None or files.out.read_text() == old


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "interrupted; the same command starts again\n"),
        (NotConvergedError("raise\nmax_iter [now]", solution=None), 2, "error: raise max_iter [now]\n"),
    ],
)
def test_a_stopped_solver_ends_in_one_line(
    files: Files, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, line: str
) -> None:
    def solve(*args: Any, **kwargs: Any) -> None:
        raise raised

    monkeypatch.setattr(warmpot.transport, "solve_partial_points", solve)
    result = files.run()
    reading, said = result.stderr.split("\n", 1)
    assert (result.exit_code, said, result.stdout) == (code, line, "")
    assert reading.startswith("reading ")
    assert files.names() == {"s.npz", "t.npz"}


def test_a_bug_keeps_its_traceback(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def solve(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(warmpot.transport, "solve_partial_points", solve)
    assert isinstance(files.run().exception, ZeroDivisionError)


@pytest.mark.parametrize(("arguments", "shown"), [([], "weights"), (["weights"], "SOURCE"), (["--help"], "--version"),
                                                  (["weights", "--help"], "Office-Home")])  # fmt: skip
def test_help_is_shown_on_request_and_without_arguments(arguments: list[str], shown: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.output.startswith("Usage: ")
    assert shown in result.output


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"warmpot {warmpot.__version__}\n")


def test_an_unknown_verb_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["weigh"]).exit_code == 2


def test_main_runs_the_app(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(warmpot.cli, "handle_signals", lambda: None)  # those of pytest stay as they are
    monkeypatch.setattr(sys, "argv", ["anything", "--help"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: warmpot ")


def test_help_loads_nothing_heavy() -> None:
    program = """
import sys
sys.argv = ["warmpot", "--help"]
from warmpot.cli import main
try:
    main()
finally:
    print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.partition("loaded:")[2].split())
    assert "weights" in done.stdout
    assert "typer" in loaded
    assert not loaded & {"torch", "numba", "ot", "matplotlib", "scipy", "numpy", "pyarrow", "pandas"}
