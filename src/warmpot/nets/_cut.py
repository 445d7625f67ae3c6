"""Cut a network in two: what comes before a part of it, and the rest."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx, nn

from warmpot._settings import suggestion
from warmpot.errors import InputError

__all__ = ["cut", "parts"]

PREFIX = "net."


class _Whole(nn.Module):
    """A network of one input: further arguments of its own keep their defaults."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        return self.net(x)


class _Tracer(fx.Tracer):
    """Follows the network's own forward and plain sequences; what they call is a block, whatever happens inside.

    So only the outermost code must be traceable, which it is for nearly all of timm.
    """

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name + "." != PREFIX and type(m).forward is not nn.Sequential.forward


def _trace(net: nn.Module) -> fx.Graph:
    try:
        graph = _Tracer().trace(_Whole(net))
    except Exception as error:  # whatever a network's code does with a stand-in for a tensor
        remedy = 'Train it whole ("all") or not at all (null).'
        got = f"a network that cannot be cut ({type(error).__name__}: {error})"
        raise InputError("train_from", got=got, allowed='null or "all"', remedy=remedy) from error
    for node in graph.nodes:
        node.type = None  # written hints are of no use to anyone, and keep the halves from being pickled
        if node.op in ("call_module", "get_attr"):
            node.target = node.target.removeprefix(PREFIX)
    return graph


def _starts(net: nn.Module, graph: fx.Graph) -> dict[str, int]:
    """Map every part with parameters to the place of its first node; "layer4" and "layer4.0" are two."""
    places: dict[str, int] = {}
    for place, node in enumerate(graph.nodes):
        if node.op == "call_module" and any(True for _ in net.get_submodule(node.target).parameters()):
            words = node.target.split(".")
            for k in range(len(words)):
                places.setdefault(".".join(words[: k + 1]), place)
    return places


def _tensors(net: nn.Module, nodes: list[fx.Node]) -> Iterator[int]:
    """Yield what identifies the parameters that nodes use."""
    own = dict(net.named_parameters(remove_duplicate=False))
    for node in nodes:
        if node.op == "get_attr" and node.target in own:
            yield id(own[str(node.target)])
        elif node.op == "call_module":
            yield from map(id, net.get_submodule(str(node.target)).parameters())


def _crossing(net: nn.Module, graph: fx.Graph, place: int) -> fx.Node | None:
    """Return the one node whose value the nodes from `place` on need; None when there is no such one."""
    nodes: list[fx.Node] = list(graph.nodes)
    before, after = nodes[:place], nodes[place:]
    early = set(before)
    used = [node for user in after for node in user.all_input_nodes if node in early]
    constants = [node for node in used if node.op == "get_attr"]
    values = {node for node in used if node.op != "get_attr"}
    if len(values) != 1 or not set(_tensors(net, before)).isdisjoint(_tensors(net, [*after, *constants])):
        return None
    return values.pop()


def parts(net: nn.Module) -> list[str]:
    """Return the names where `cut` can cut, in the order of the forward pass.

    They are parts that have parameters, before which a single tensor passes and nothing is shared with what follows.
    """
    graph = _trace(net)
    return [name for name, place in _starts(net, graph).items() if _crossing(net, graph, place) is not None]


def cut(net: nn.Module, part: str) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Cut a network before a part: ``second(first(x))`` is what it was; parameters keep their names.

    Parameters
    ----------
    net : torch.nn.Module
        A network of one tensor; the halves use its tensors, apart from buffers that both need.
    part : str
        One of `parts`.
    """
    graph = _trace(net)
    place = _starts(net, graph).get(part)
    crossing = None if place is None else _crossing(net, graph, place)
    if place is None or crossing is None:
        names = parts(net)
        got = f"{part!r}, " + ("no part with parameters" if place is None else "before which no single tensor passes")
        allowed = f'null, "all", {", ".join(names)}'
        raise InputError("train_from", got=got, allowed=allowed, remedy=suggestion(part, names))
    nodes: list[fx.Node] = list(graph.nodes)
    first, second = fx.Graph(), fx.Graph()
    made = _copied(nodes[:place], first, {})
    first.output(made[crossing])
    _copied(nodes[place:], second, {crossing: second.placeholder("x")})
    return fx.GraphModule(net, first, "First"), fx.GraphModule(copy.deepcopy(net), second, "Second")


def _copied(nodes: list[fx.Node], graph: fx.Graph, made: dict[fx.Node, fx.Node]) -> dict[fx.Node, fx.Node]:
    """Copy nodes into a graph, and tensors of the network when they are first used: each half has those it needs."""
    for node in nodes:
        for used in node.all_input_nodes:
            if used.op == "get_attr" and used not in made:
                made[used] = graph.node_copy(used)
        if node.op != "get_attr":
            made[node] = graph.node_copy(node, made.__getitem__)
    return made
