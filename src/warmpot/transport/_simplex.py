"""POT's network simplex, without the rest of POT; import this module inside functions only.

``import ot`` takes seconds: it imports scikit-learn and every array library it finds, where a solve needs two compiled
functions. So its compiled module is loaded by itself. The one thing that this module imports from POT is a distance,
which the simplex does not use. A later ``import ot`` gets the same module (an extension of Cython exists once in a
process), so that distance is passed on to POT's.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["emd_c", "emd_c_sparse"]

COMPILED = "ot.lp.emd_wrap"
ALONE = "_warmpot_pot"
"""Stands for the package `ot` while the module is loaded, so that nothing else sees a package without content."""


def _dist(*args: Any, **kwargs: Any) -> Any:
    from ot.utils import dist

    return dist(*args, **kwargs)


def _loaded_alone() -> ModuleType | None:
    """Load the compiled module; None where this version of POT needs more of itself."""
    pot = find_spec("ot")
    folders = [str(Path(folder) / "lp") for folder in (pot and pot.submodule_search_locations) or ()]
    spec = PathFinder.find_spec(f"{ALONE}.lp.emd_wrap", folders)
    if spec is None or spec.loader is None:
        return None
    parents = {name: ModuleType(name) for name in (ALONE, f"{ALONE}.lp", f"{ALONE}.utils")}
    parents[f"{ALONE}.utils"].dist = _dist  # type: ignore[attr-defined]
    sys.modules.update(parents)
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError:
        return None
    finally:
        for name in (*parents, COMPILED):  # Cython enters it under the name it was compiled with
            sys.modules.pop(name, None)
    return module


_module = sys.modules.get(COMPILED) or _loaded_alone() or import_module(COMPILED)
emd_c, emd_c_sparse = _module.emd_c, _module.emd_c_sparse
