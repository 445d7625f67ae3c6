"""A wheel and a source distribution of a clone work in a new environment, without the repository and without extras."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD_SDIST = "import setuptools.build_meta as backend; print(backend.build_sdist('dist'))"


def run(*words: object, cwd: Path) -> str:
    """Run a command that does not see this repository or its environment; return what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of the package in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.startswith("warmpot/")}


@pytest.mark.slow
def test_a_wheel_and_an_sdist_work_without_the_repository(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git clone")
    clone, constraints = tmp_path / "clone", ROOT / "constraints.txt"
    run("git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), clone, cwd=tmp_path)
    tracked = set(run("git", "-C", "src", "ls-files", "warmpot", cwd=clone).splitlines())
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    programs = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    python, warmpot = programs / "python", programs / "warmpot"
    try:
        run(python, "-m", "pip", "install", "--quiet", "setuptools>=77", "wheel", cwd=tmp_path)
    except AssertionError as error:
        pytest.skip(f"pip finds no packages: {error}")

    # both ways to a wheel give the same package, with every file that is under version control
    pip_wheel = (python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    sdist = clone / "dist" / run(python, "-c", BUILD_SDIST, cwd=clone).splitlines()[-1]
    run(*pip_wheel, sdist, "--wheel-dir", tmp_path / "from-sdist", cwd=tmp_path)
    run(*pip_wheel, clone, "--wheel-dir", tmp_path / "from-clone", cwd=tmp_path)
    (wheel,), (other,) = (list((tmp_path / name).glob("*.whl")) for name in ("from-sdist", "from-clone"))
    assert contents(wheel) == contents(other)
    assert {*contents(wheel)} == tracked

    # constraints: without them pip takes the newest torch, and gigabytes of libraries for GPUs
    run(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, wheel, cwd=tmp_path)
    run(python, "-m", "pip", "check", cwd=tmp_path)
    place = run(python, "-c", "import warmpot; print(warmpot.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(tmp_path / "env")
    run(warmpot, "demo", "--out", "demo", cwd=tmp_path)
    data = tmp_path / "demo" / "source.npz", tmp_path / "demo" / "target.npz"
    run(warmpot, "fit", *data, "--preset", "source-only", "--out", "run", "--no-report", cwd=tmp_path)
    run(warmpot, "predict", "run", data[1], "--out", "predictions.csv", cwd=tmp_path)
    run(warmpot, "report", "run", cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    columns = []
    for file in ("predictions.csv", "run/predictions.csv"):
        with open(tmp_path / file, newline="") as stream:
            columns.append([row["prediction"] for row in csv.DictReader(stream)])
    assert columns[0] == columns[1]
    assert len(columns[0]) == 901
    for words in (["methods"], ["doctor", "--dataset", "office-home"], ["bench", "--help"]):  # recipes and data sets
        run(warmpot, *words, cwd=tmp_path)
