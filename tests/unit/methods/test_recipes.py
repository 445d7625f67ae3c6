"""Every number of the recipes that follow an official code, as docs/method-specifications.md has them."""

from __future__ import annotations

from typing import Any

import pytest

from warmpot.train import load_config

SGD = {"name": "sgd", "lr": 1e-3, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3, "decay_rate": 1e-3,
       "decay_power": 0.75, "backbone": 1.0, "bottleneck": 10.0, "head": 10.0, "extra": 10.0}  # fmt: skip
ADAM = {"name": "adam", "lr": 1e-4, "weight_decay": 1e-3, "decay_rate": 1e-3, "decay_power": 0.75, "backbone": 0.1,
        "bottleneck": 1.0, "head": 1.0}  # fmt: skip
SLOW = {**SGD, "decay_rate": 4e-4}
OFFICE31 = {**SGD, "lr": 1e-4}
LINEAR = {"scale": "none", "bottleneck": "linear", "width": 256, "sphere": None, "joint": False}
BN = {**LINEAR, "bottleneck": "bn_relu", "joint": True}
ARPM_CRITIC = {"hidden": 1024, "steps": 15000, "batch": 36, "lr": 1e-3, "spectral": True, "fresh": False}
AR_CRITIC = {"hidden": 1024, "batch": 36, "lr": 1e-3, "spectral": False, "penalty": 100.0, "dropout": 0.5, "slope": 0.0,
             "fresh": True}  # fmt: skip
LOOPS: dict[str, tuple[int, int, str, dict[str, Any], dict[str, Any]]] = {
    "mpot": (5000, 65, "balanced", SGD, LINEAR),
    "jumbot": (5000, 65, "balanced", SGD, LINEAR),
    "ba3us": (5000, 36, "shuffled", SGD, LINEAR),
    "ba3us-imagenet": (40000, 36, "shuffled", SGD, LINEAR),
    "pwan": (5000, 65, "balanced", ADAM, BN),
    "pwan-imagenet": (48000, 100, "shuffled", ADAM, BN),
    "ar": (5000, 36, "shuffled", SGD, {**LINEAR, "sphere": 10.0}),
    "ar-imagenet": (100000, 36, "shuffled", SLOW, {**LINEAR, "sphere": 20.0, "width": 4096}),
    "arpm": (3000, 64, "shuffled", SGD, {**LINEAR, "sphere": "auto"}),
    "arpm-imagenet": (20000, 64, "shuffled", SLOW, {**LINEAR, "sphere": "auto", "width": 4096}),
    "mpot-office31": (2000, 65, "balanced", OFFICE31, LINEAR),
    "jumbot-office31": (2000, 65, "balanced", OFFICE31, LINEAR),
    "ba3us-office31": (2000, 36, "shuffled", OFFICE31, LINEAR),
    "ar-office31": (3000, 36, "shuffled", SGD, {**LINEAR, "sphere": 8.5}),
    "arpm-office31": (4000, 64, "shuffled", {**SGD, "lr": 5e-4}, {**LINEAR, "sphere": "auto"}),
}
PARAMS: dict[str, dict[str, Any]] = {
    "mpot": {"eta1": 0.03, "eta2": 7.5, "eps": 0.5, "loss_scale": 1.0, "alpha_start": 0.01, "ramp": 0.5},
    "jumbot": {"eta1": 0.003, "eta2": 0.75, "eps": 0.01, "tau": 0.06, "loss_scale": 10.0, "regularizer": "entropy"},
    "ba3us": {"adversarial": 1.0, "entropy": 0.1, "complement": 1.0, "augmentation": 0.25, "periods": 10,
              "slope": 10.0, "hidden": 1024},
    "ba3us-imagenet": {"entropy": 0.1, "complement": 1.0, "periods": 10},
    "pwan": {"transfer": 0.05, "entropy": 0.1, "complement": 1.0, "smoothing": 0.1, "rho0": "auto", "kappa": 0.03162,
             "critic_steps": 5, "critic_lr": 1e-4, "penalty": 1000.0, "hidden": 256},
    "pwan-imagenet": {"entropy": 0.1, "complement": 0.0, "smoothing": 0.0, "kappa": 0.1, "critic_steps": 1},
    "ar": {"entropy": 0.1, "label_smooth": 0.0},
    "ar-imagenet": {"entropy": 0.1, "label_smooth": 0.0},
    "arpm": {"label_smooth": 0.1, "power": 6.0, "power_weight": 0.3, "consistency": 1.0, "neighbours": 4,
             "second_neighbours": 3, "pca_head": True},
    "arpm-imagenet": {"label_smooth": 0.1, "power": 6.0, "power_weight": 0.3, "start": 0.1},
    "mpot-office31": {"alpha": 0.25, "eta1": 0.03, "eta2": 7.5, "eps": 0.5, "loss_scale": 1.0, "ramp": 0.5},
    "jumbot-office31": {"eta1": 0.003, "eta2": 0.75, "eps": 0.01, "tau": 0.06, "loss_scale": 10.0},
    "ba3us-office31": {"adversarial": 1.0, "entropy": 0.1, "complement": 5.0, "augmentation": 0.25, "periods": 10},
    "ar-office31": {"entropy": 0.1, "label_smooth": 0.0, "start": 0.0},
    "arpm-office31": {"label_smooth": 0.1, "power": 6.0, "power_weight": 1.0, "consistency": 1.0, "neighbours": 4,
                      "second_neighbours": 3, "start": 0.375, "pca_head": True},
}  # fmt: skip
WEIGHTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mpot": ("uniform", {}),
    "jumbot": ("uniform", {}),
    "ba3us": ("class_share", {"hard": False, "periods": 10, "from_start": False}),
    "ba3us-imagenet": ("class_share", {"hard": False, "periods": 10}),
    "pwan": ("class_share", {"hard": False, "periods": 50, "from_start": True}),
    "pwan-imagenet": ("class_share", {"hard": False, "from_start": True}),
    "ar": ("chi2_ball", {"rho": 5.0, "adjust": True, "periods": 10, "critic": {**AR_CRITIC, "steps": 3000}}),
    "ar-imagenet": (
        "chi2_ball",
        {"rho": 5.0, "adjust": True, "periods": 50, "subset": 72000, "critic": {**AR_CRITIC, "steps": 6000}},
    ),
    "arpm": ("chi2_ball", {"rho": 5.0, "adjust": False, "periods": 6, "critic": ARPM_CRITIC}),
    "arpm-imagenet": (
        "chi2_ball",
        {"rho": 5.0, "adjust": False, "periods": 10, "subset": 128000, "critic": ARPM_CRITIC},
    ),
    "ba3us-office31": ("class_share", {"hard": False, "periods": 10, "from_start": False}),
    "ar-office31": (
        "chi2_ball",
        {"rho": 5.0, "adjust": True, "periods": 6, "early": 0.0666667, "critic": {**AR_CRITIC, "steps": 3000}},
    ),
    "arpm-office31": ("chi2_ball", {"rho": 5.0, "adjust": False, "periods": 8, "critic": ARPM_CRITIC}),
    "arpm-warmpot": ("capped", {"beta": 0.3333333, "periods": 6, "critic": ARPM_CRITIC}),
    "arpm-plan": ("plan", {"scope": "dataset", "alpha": 1.0, "beta": 0.3333333, "eta2": 0.0, "periods": 6}),
}


def differing(found: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """Settings that are not as wanted, nested ones too."""
    bad: dict[str, Any] = {}
    for name, value in wanted.items():
        own = found[name] if isinstance(found, dict) else getattr(found, name)
        if isinstance(value, dict):
            bad |= {f"{name}.{key}": pair for key, pair in differing(own, value).items()}
        elif own != value:
            bad[name] = (own, value)
    return bad


@pytest.mark.parametrize("preset", LOOPS)
def test_the_loop_is_the_official_one(preset: str) -> None:
    steps, batch, sampler, optimizer, network = LOOPS[preset]
    loop = load_config(preset).minibatch
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (steps, batch, batch, sampler)
    assert loop.warmup == 0
    assert not differing(loop.optimizer, optimizer)
    assert not differing(loop.network, network)


def test_only_the_imagenet_code_of_warmpot_starts_as_torch_does() -> None:
    starts = {name: load_config(name).minibatch.network.init for name in ("official", "imagenet-caltech", *LOOPS)}
    assert {name for name, init in starts.items() if init == "torch"} == {"imagenet-caltech"}


@pytest.mark.parametrize("preset", PARAMS)
def test_the_constants_are_the_official_ones(preset: str) -> None:
    assert not differing(load_config(preset).params, PARAMS[preset])


@pytest.mark.parametrize("preset", WEIGHTS)
def test_the_weights_are_the_official_ones(preset: str) -> None:
    name, params = WEIGHTS[preset]
    config = load_config(preset)
    assert config.weights == name
    assert not differing(config.weight_params, params)


@pytest.mark.parametrize("name", ["mpot", "jumbot", "ba3us", "pwan", "ar", "arpm", "arpm-warmpot", "arpm-plan"])
def test_frozen_recipes_share_one_loop(name: str) -> None:
    ours, common = load_config(f"{name}-frozen").minibatch, load_config("frozen").minibatch
    assert (ours.steps, ours.source_batch, ours.target_batch, ours.sampler, ours.optimizer) == (
        common.steps, common.source_batch, common.target_batch, common.sampler, common.optimizer,
    )  # fmt: skip
    assert not differing(ours.network, {"scale": "auto", "radius": 20.0, "bottleneck": "linear", "width": 256})
