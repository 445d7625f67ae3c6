"""Networks: from inputs to features f(x) and outputs w(x)."""

from __future__ import annotations

from warmpot.nets.network import SCALES, Network, NetworkSettings, Outputs, Pair, build_network
from warmpot.nets.store import load_network, save_network

__all__ = ["SCALES", "Network", "NetworkSettings", "Outputs", "Pair", "build_network", "load_network", "save_network"]
