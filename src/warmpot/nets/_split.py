"""Split a network in two: what comes before one of its parts, and the rest."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from torch import Tensor, fx, nn

from warmpot._settings import suggestion
from warmpot.errors import InputError

__all__ = ["split_network", "split_points"]

PREFIX = "net."


class _SingleInput(nn.Module):
    """A network as a function of one input: its further arguments keep their defaults."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        return self.net(x)


class _Tracer(fx.Tracer):
    """Traces the network's own forward and plain sequences; every other module stays a block of its own.

    So only the outermost code must be traceable, which is the case for nearly all models of timm.
    """

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name + "." != PREFIX and type(m).forward is not nn.Sequential.forward


def _trace(net: nn.Module) -> fx.Graph:
    try:
        graph = _Tracer().trace(_SingleInput(net))
    except Exception as error:  # whatever a network's code does with a placeholder for a tensor
        remedy = 'Train it whole ("all") or not at all (null).'
        got = f"a network that cannot be split ({type(error).__name__}: {error})"
        raise InputError("train_from", got=got, allowed='null or "all"', remedy=remedy) from error
    for node in graph.nodes:
        node.type = None  # type hints are not needed, and would prevent pickling
        if node.op in ("call_module", "get_attr"):
            node.target = node.target.removeprefix(PREFIX)
    return graph


def _first_nodes(net: nn.Module, graph: fx.Graph) -> dict[str, int]:
    """Map every part with parameters to the index of its first node; "layer4" and "layer4.0" are two parts."""
    first: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        if node.op == "call_module" and any(True for _ in net.get_submodule(node.target).parameters()):
            for part in accumulate(node.target.split("."), "{}.{}".format):
                first.setdefault(part, index)
    return first


def _parameter_ids(net: nn.Module, nodes: list[fx.Node]) -> Iterator[int]:
    """Yield the ids of the parameters that nodes use."""
    parameters = dict(net.named_parameters(remove_duplicate=False))
    for node in nodes:
        if node.op == "get_attr" and node.target in parameters:
            yield id(parameters[str(node.target)])
        elif node.op == "call_module":
            yield from map(id, net.get_submodule(str(node.target)).parameters())


def _crossing(net: nn.Module, graph: fx.Graph, index: int) -> fx.Node | None:
    """Return the only earlier node whose value is needed from `index` on; None if there are several or none."""
    nodes: list[fx.Node] = list(graph.nodes)
    before, after = nodes[:index], nodes[index:]
    earlier = set(before)
    used = [node for user in after for node in user.all_input_nodes if node in earlier]
    constants = [node for node in used if node.op == "get_attr"]
    values = {node for node in used if node.op != "get_attr"}
    if len(values) != 1 or not set(_parameter_ids(net, before)).isdisjoint(_parameter_ids(net, [*after, *constants])):
        return None
    return values.pop()


def split_points(net: nn.Module) -> list[str]:
    """Return the parts before which `split_network` can split, in the order of the forward pass.

    These are the parts with parameters before which a single tensor passes and no parameter is shared across the split.
    """
    graph = _trace(net)
    return [name for name, index in _first_nodes(net, graph).items() if _crossing(net, graph, index) is not None]


def split_network(net: nn.Module, part: str) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a network of one tensor before one of its `split_points`: ``second(first(x))`` equals ``net(x)``.

    Parameters keep their names. The halves use the network's tensors, apart from buffers that both need.
    """
    graph = _trace(net)
    index = _first_nodes(net, graph).get(part)
    crossing = None if index is None else _crossing(net, graph, index)
    if index is None or crossing is None:
        names = split_points(net)
        problem = "not a part with parameters" if index is None else "before which no single tensor passes"
        allowed = f'null, "all", {", ".join(names)}'
        raise InputError("train_from", got=f"{part!r}, {problem}", allowed=allowed, remedy=suggestion(part, names))
    nodes: list[fx.Node] = list(graph.nodes)
    first, second = fx.Graph(), fx.Graph()
    first.output(_copy_nodes(nodes[:index], first, {})[crossing])
    _copy_nodes(nodes[index:], second, {crossing: second.placeholder("x")})
    return fx.GraphModule(net, first, "First"), fx.GraphModule(copy.deepcopy(net), second, "Second")


def _copy_nodes(nodes: list[fx.Node], graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> dict[fx.Node, fx.Node]:
    """Copy nodes into a graph, with the tensors of the network that they use: each half gets those it needs."""
    for node in nodes:
        for used in node.all_input_nodes:
            if used.op == "get_attr" and used not in copies:
                copies[used] = graph.node_copy(used)
        if node.op != "get_attr":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return copies
