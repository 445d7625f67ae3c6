"""The status of presets: what is not a reproduction is called so in every loop."""

from __future__ import annotations

import pytest

from warmpot.methods import METHODS
from warmpot.report.sections.provenance import preset_status
from warmpot.train import load_config, preset_names


def _status(preset: str) -> str:
    config = load_config(preset)
    return preset_status(preset, type(config.built_method), config.engine)


@pytest.mark.parametrize("preset", preset_names())
def test_interpretations_are_called_so(preset: str) -> None:
    method = METHODS[load_config(preset).method]
    interpreted = method.status.startswith("interpretation") or preset.startswith(("arpm-warmpot", "arpm-plan"))
    if interpreted or preset in ("mpot-imagenet", "jumbot-imagenet"):
        assert _status(preset).startswith("interpretation")
    else:
        assert "interpretation" not in _status(preset)


@pytest.mark.parametrize(
    ("preset", "start"),
    [
        ("ba3us", "reproduction of the official code"), ("dann", "reproduction of the objective in the Transfer"),
        ("dann-frozen", "ours: "), ("full", "ours: "), ("spl", "reproduction"), ("source-only", "baseline"),
        ("mot-frozen", "interpretation: "), ("pseudo-label-frozen", "baseline: "), ("paper", "the paper's formulas"),
    ],
)  # fmt: skip
def test_the_status_of_a_preset(preset: str, start: str) -> None:
    assert _status(preset).startswith(start)
