"""Networks: from inputs to features f(x) and outputs w(x), and networks that score features."""

from __future__ import annotations

from warmpot.nets.adversary import (
    ClassDiscriminators,
    Critic,
    Discriminator,
    frozen_head,
    gradient_penalty,
    reverse_gradient,
)
from warmpot.nets.backbone import Backbone, BackboneSettings, build_backbone
from warmpot.nets.heads import PrototypeHead, SphereHead, WeightNormHead, sphere_radius
from warmpot.nets.network import (
    SCALES,
    Network,
    NetworkSettings,
    Outputs,
    Pair,
    build_network,
    load_network,
    make_linear,
    restart_head,
    save_network,
)
from warmpot.nets.residual import ResidualBlock

__all__ = [
    "SCALES", "Backbone", "BackboneSettings", "ClassDiscriminators", "Critic", "Discriminator", "Network",
    "NetworkSettings", "Outputs", "Pair", "PrototypeHead", "ResidualBlock", "SphereHead", "WeightNormHead",
    "build_backbone", "build_network", "frozen_head", "gradient_penalty", "load_network", "make_linear",
    "restart_head", "reverse_gradient", "save_network", "sphere_radius",
]  # fmt: skip
