"""The package as a whole: public names, light imports, messages."""

from __future__ import annotations

import compileall
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import warmpot
from warmpot import errors

HEAVY = {"torch", "numba", "ot", "matplotlib", "sklearn", "pyarrow"}
MODULES = [m.name for m in pkgutil.walk_packages(warmpot.__path__, "warmpot.")]


@pytest.mark.parametrize("name", ["warmpot", *MODULES])
def test_all_names_what_exists_once(name: str) -> None:
    module = importlib.import_module(name)
    private = any(part.startswith("_") for part in name.split("."))
    exported = list(getattr(module, "__all__", []) if private else module.__all__)
    assert len(exported) == len(set(exported))
    for entry in exported:
        assert hasattr(module, entry), f"{name}.__all__ names {entry}, which does not exist"


@pytest.mark.parametrize("name", ["warmpot", "warmpot.transport", "warmpot.data", "warmpot.errors"])
def test_no_symbol_is_public_by_accident(name: str) -> None:
    module = importlib.import_module(name)
    submodules = {m.name for m in pkgutil.iter_modules(getattr(module, "__path__", []))}
    ours = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", "").startswith("warmpot")
    }
    assert ours - submodules <= set(module.__all__)


@pytest.mark.parametrize("statement", ["import warmpot", "import warmpot; warmpot.transport; warmpot.data"])
def test_import_is_light(statement: str) -> None:
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY & set(loaded)


def test_an_exact_plan_loads_the_simplex_and_no_more_of_pot() -> None:
    code = """
import sys
import numpy as np
from warmpot.transport import solve_partial
assert solve_partial(np.eye(3), mass=0.5).status.ok
print(*(name for name in sys.modules if name.split(".")[0] in ("ot", "sklearn", "torch", "_warmpot_pot")))
import ot  # gets the same compiled module, whole
assert ot.lp.emd_wrap.emd_c_sparse is sys.modules["warmpot.transport._simplex"].emd_c_sparse
assert ot.emd2(np.ones(2) / 2, np.ones(2) / 2, np.eye(2)) == 0
assert ot.emd2_1d(np.array([0.0, 1.0]), np.array([1.0, 3.0]), metric="cityblock") == 1.5
"""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.split()) == (0, []), run.stderr


@pytest.mark.parametrize("compiled", [False, True])
def test_byte_code_is_kept_even_where_folders_of_code_stay_clean(compiled: bool, tmp_path: Path) -> None:
    package, cache = tmp_path / "packages" / "heavy", tmp_path / "cache"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from heavy import part\n")
    (package / "part.py").write_text("")
    if compiled:
        assert compileall.compile_dir(package, quiet=2)
    before = sorted(package.rglob("*"))
    code = "from warmpot.cli import keep_byte_code\nkeep_byte_code('heavy')\nimport heavy"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"} | {
        "PYTHONPATH": os.pathsep.join([str(package.parent), *sys.path]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "WARMPOT_CACHE": str(cache),
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert sorted(package.rglob("*")) == before
    kept = {file.name.split(".")[0] for file in cache.rglob("heavy/*.pyc")}
    assert kept == (set() if compiled else {"__init__", "part"})


def test_a_network_is_built_without_the_symbolic_mathematics_of_torch() -> None:
    code = """
import sys
import torch
from warmpot.nets.network import NetworkSettings, build_network
before = set(sys.modules)
build_network(NetworkSettings(width=3), 4, 2, seed=0)
print(*(name for name in set(sys.modules) - before if name.split(".")[0] == "sympy"))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not run.stdout.split()


SLOW = {"sklearn", "pandas", "pyarrow", "sympy", "lightning_fabric", "ot"}
SLOW_PARTS = {"scipy.optimize", "scipy.spatial", "scipy.special", "scipy.stats", "torch._dynamo", "matplotlib.pyplot"}


def test_a_fit_with_its_report_imports_nothing_slow_that_it_can_do_without(tmp_path: Path) -> None:
    code = """
import gc
import sys
import numpy as np
from warmpot.cli._app import app
rng = np.random.default_rng(0)
labels, fewer = np.repeat(np.arange(3), 100), np.repeat(np.arange(2), 40)  # 100: classes that are split
for name, y in {"source": labels, "target": fewer}.items():
    np.savez(f"{name}.npz", X=20 * np.eye(3, 64)[y] + rng.normal(size=(len(y), 64)), y=y)
app(["fit", "source.npz", "target.npz", "--out", "run", "--quiet"], standalone_mode=False)
assert gc.isenabled() and gc.get_freeze_count() > 100_000  # collections of garbage do not look at torch
print(*sys.modules)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
    modules = run.stdout.split()
    assert sorted(SLOW & {name.split(".")[0] for name in modules} | SLOW_PARTS & set(modules)) == []


def test_every_layer_is_an_attribute_and_loads_on_first_use() -> None:
    layers = {m.name for m in pkgutil.iter_modules(warmpot.__path__) if not m.name.startswith("_")} - {"cli"}
    assert layers == set(warmpot._LAYERS) <= set(warmpot.__all__)
    code = "import sys, warmpot\nprint(*(name for name in sys.modules if name.startswith('warmpot.')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not run.stdout.split()
    for name in layers:
        assert getattr(warmpot, name) is importlib.import_module(f"warmpot.{name}")


def test_the_main_names_are_those_of_their_layers() -> None:
    names = {name: layer for layer, several in warmpot._NAMES.items() for name in several}
    assert set(warmpot.__all__) == {"__version__", *warmpot._LAYERS, *names}
    assert set(warmpot.__all__) <= set(dir(warmpot))
    for name, layer in names.items():
        module = importlib.import_module(f"warmpot.{layer}")
        assert name in module.__all__
        assert getattr(warmpot, name) is getattr(module, name)
    from warmpot import WarmpotClassifier, solve_partial

    assert WarmpotClassifier is warmpot.estimators.WarmpotClassifier
    assert solve_partial is warmpot.transport.solve_partial


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        warmpot.nonsense  # noqa: B018
    assert "transport" in dir(warmpot)


def test_every_error_is_a_warmpot_error() -> None:
    kinds = [getattr(errors, n) for n in errors.__all__ if n.endswith("Error")]
    assert all(issubclass(kind, errors.WarmpotError) for kind in kinds)
    assert issubclass(errors.InputError, ValueError)
    assert issubclass(errors.MissingExtraError, ImportError)
