"""From the name of a method to its settings, wherever the name stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmpot.errors import InputError
from warmpot.select.space import Space
from warmpot.train import load_config
from warmpot.train.recipes import preset_for


@pytest.mark.parametrize("method", ["warmpot", "source-only", "ba3us", "arpm"])
def test_a_method_is_its_preset_in_files_changes_and_spaces(tmp_path: Path, method: str) -> None:
    wanted = load_config(preset_for(method))
    file = tmp_path / "run.yaml"
    file.write_text(f"method: {method}\n")
    assert load_config(file=file) == wanted
    assert load_config(changes={"method": method}) == wanted
    space = Space({"method": [method], "seed": 0})
    (point,) = space.points()
    assert space.config(point) == wanted
    assert space.name(point).startswith(wanted.preset)


def test_a_named_preset_wins() -> None:
    assert load_config("official", changes={"method": "warmpot"}).preset == "official"
    with pytest.raises(InputError, match="engine: got 'full' with the method 'ba3us'"):
        load_config("full", changes={"method": "ba3us"})


def test_a_space_names_the_candidate_that_cannot_be() -> None:
    with pytest.raises(
        InputError, match=r"space, jumbot-frozen, method jumbot, weights own: config.weights: got 'own'"
    ):
        Space({"method": ["mpot", "jumbot"], "weights": ["uniform", "own"]})


def test_what_a_recipe_says_of_images_is_for_images_only() -> None:
    assert load_config("dann").images is None
    trained = load_config("dann", changes={"images": {"backbone": {"train_from": "all"}}}).images
    assert trained is not None
    assert (trained.view.crops, trained.backbone.train_from) == ("resized", "all")
    plain = load_config("dann", changes={"images": {"view": {"crops": "random"}}}).images
    assert plain is not None
    assert plain.view.crops == "random"
