"""Choosing an iterate within a run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy

from warmpot._files import read_csv, write_csv
from warmpot.data import digits_task, make_task
from warmpot.errors import InputError
from warmpot.train import Predictor, fit, load_config
from warmpot.train.run_reader import read_run

pytestmark = pytest.mark.usefixtures("few_simulations")

SMALL = {"full": {"rounds": 3, "width": 16, "iterations": 5}}
QUICK = {"minibatch": {"steps": 12, "checkpoint_every": 4, "log_every": 3}}


class Wants:
    """Keeps the snapshots whose step is in a list, and remembers all it saw."""

    def __init__(self, *steps: int) -> None:
        self.steps, self.seen = steps, []

    def offer(self, snapshot):
        assert np.isfinite(snapshot.target.logits.numpy()).all()
        self.seen.append(snapshot.step)
        return snapshot.step in self.steps, {"score": float(snapshot.step)}

    def state(self):
        return {"seen": self.seen}

    def load(self, state):
        self.seen = list(state["seen"])


@pytest.fixture(scope="module")
def task():
    return make_task(*digits_task(seed=0))[0]


@pytest.mark.parametrize(
    ("preset", "changes", "offered", "wanted"),
    [("full", SMALL, [0, 1, 2, 3, 4, 5, 6], 2), ("official", QUICK, [4, 8, 12], 8), ("source-only", {}, [0], 0)],
)
def test_the_kept_iterate_is_the_result(task, tmp_path, preset, changes, offered, wanted):
    config, chooser = load_config(preset, changes=changes), Wants(wanted)
    fitted = fit(task, config, chooser=chooser, out=tmp_path / "run", progress_bar=False)
    assert chooser.seen == offered
    assert json.loads((tmp_path / "run" / "run.json").read_text())["target_use"]["iterate"] is True
    assert fitted.step == wanted
    last = fit(task, config, progress_bar=False)
    assert last.step == offered[-1]
    if wanted != offered[-1]:
        assert np.abs(last.outputs - fitted.outputs).max() > 1e-3
    steps = [line["step"] for line in fitted.history if "score" in line]
    assert steps == offered  # round 0 of the full engine too
    saved = Predictor.load(str(tmp_path / "run"))  # a text is a path too
    np.testing.assert_allclose(saved.probabilities(task.xt), fitted.outputs, atol=1e-4)


def test_the_predictions_without_adaptation_are_those_of_round_0(task, tmp_path):
    config = load_config("full", changes=SMALL)
    first = fit(task, config, chooser=Wants(0), progress_bar=False)
    fitted = fit(task, config, out=tmp_path / "run", progress_bar=False)
    np.testing.assert_array_equal(fitted.unadapted, first.outputs.argmax(axis=1))
    assert (fitted.unadapted != fitted.outputs.argmax(axis=1)).any()
    np.testing.assert_array_equal(read_run(tmp_path / "run").unadapted, fitted.unadapted)
    model = Predictor.load(tmp_path / "run")
    logits = model.outputs(task.xt).logits.numpy()
    assert model.temperature > 1  # the confidences are calibrated, and the predictions are those of the network
    np.testing.assert_array_equal(fitted.outputs.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_allclose(fitted.outputs, softmax(logits / model.temperature, axis=1), atol=1e-4)
    raw = softmax(first.predictor.outputs(task.xt).logits.numpy(), axis=1)
    np.testing.assert_allclose(fitted.unknown, entropy(raw, axis=1) / np.log(10), atol=1e-4)
    columns = read_csv(tmp_path / "run" / "predictions.csv", errors="strict")
    reviewed = [row[columns[0].index("review")] for row in columns[1:]]
    chances = fitted.presence.probability[fitted.outputs.argmax(axis=1)]
    assert reviewed == [str(bool(sure < 0.8)) for sure in fitted.outputs.max(axis=1) * chances]
    assert reviewed != [str(bool(sure < 0.8)) for sure in fitted.outputs.max(axis=1)]  # one class is doubtful
    assert reviewed == [str(bool(flag)) for flag in read_run(tmp_path / "run").review]
    assert reviewed == [str(bool(flag)) for flag in model.review(model.probabilities(task.xt))]
    without = [row[: columns[0].index("review")] for row in columns]
    write_csv(tmp_path / "run" / "predictions.csv", without[0], without[1:])
    facts = json.loads((tmp_path / "run" / "model.json").read_text())
    del facts["facts"]["temperature"]
    (tmp_path / "run" / "model.json").write_text(json.dumps(facts))
    old = read_run(tmp_path / "run")  # a folder of an older version
    assert (old.unadapted, old.unknown, old.temperature) == (None, None, 1.0)
    assert Predictor.load(tmp_path / "run").temperature == 1.0
    assert fit(task, load_config("official", changes=QUICK), progress_bar=False).unadapted is None


@pytest.mark.parametrize(("preset", "changes", "wanted"), [("full", SMALL, 1), ("official", QUICK, 4)])
def test_a_resumed_run_keeps_what_was_kept_before(task, tmp_path, preset, changes, wanted):
    class StopsAfter(Wants):
        def offer(self, snapshot):
            answer = super().offer(snapshot)
            if snapshot.step == wanted * 2:
                raise KeyboardInterrupt
            return answer

    config, whole = load_config(preset, changes=changes), Wants(wanted)
    unbroken = fit(task, config, chooser=whole, progress_bar=False)
    with pytest.raises(KeyboardInterrupt):
        fit(task, config, chooser=StopsAfter(wanted), out=tmp_path / "run", progress_bar=False)
    after = Wants(wanted)
    resumed = fit(task, config, chooser=after, out=tmp_path / "run", resume=True, progress_bar=False)
    assert resumed.step == wanted
    assert after.seen == whole.seen
    np.testing.assert_array_equal(resumed.outputs, unbroken.outputs)


@pytest.mark.parametrize(("wanted", "equal"), [(4, True), (12, False)], ids=["before the first weights", "after"])
def test_weights_belong_to_the_kept_iterate(task, wanted, equal):
    weighting = {"periods": 2, "critic": {"hidden": 8, "steps": 3}}
    changes = {**QUICK, "weight_params": weighting, "params": {"start": 0.5}}
    fitted = fit(task, load_config("arpm-frozen", changes=changes), chooser=Wants(wanted), progress_bar=False)
    assert fitted.step == wanted
    assert (np.ptp(fitted.source_weights) == 0) == equal


def test_a_run_stopped_in_its_first_round_has_one_line_of_round_0(task, tmp_path):
    class StopsAtOnce(Wants):
        def offer(self, snapshot):
            if snapshot.step == 1:
                raise KeyboardInterrupt
            return super().offer(snapshot)

    config = load_config("full", changes=SMALL)
    with pytest.raises(KeyboardInterrupt):
        fit(task, config, chooser=StopsAtOnce(0), out=str(tmp_path / "run"), progress_bar=False)
    resumed = fit(task, config, chooser=Wants(0), out=str(tmp_path / "run"), resume=True, progress_bar=False)
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged] == [0, 1, 2, 3, 4, 5, 6]  # five hypotheses, and the best of them
    assert logged == resumed.history


def test_the_network_as_it_sees_the_source(task):
    """The full engine shifts each domain by its own mean; a saved model knows both."""
    fitted = fit(task, load_config("full", changes=SMALL), progress_bar=False)
    as_source = fitted.predictor.outputs(task.xs, source=True).logits
    as_target = fitted.predictor.outputs(task.xs).logits
    assert (as_source - as_target).abs().max() > 1e-3
    accuracy = [(z.argmax(1).numpy() == task.ys).mean() for z in (as_source, as_target)]
    assert accuracy[0] > accuracy[1] - 0.02


def test_a_choice_without_a_chooser_is_refused(task):
    """The last iterate under the name of a validator would be a lie."""
    with pytest.raises(InputError, match="fit_chosen"):
        fit(task, load_config("full", changes={**SMALL, "choose": "entropy"}), progress_bar=False)
