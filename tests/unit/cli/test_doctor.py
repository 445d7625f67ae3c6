"""The command ``warmpot doctor``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import warmpot.transport
from warmpot.cli import _doctor_checks, app
from warmpot.cli._doctor_checks import Finding

rng = np.random.default_rng(0)
XS, YS, XT = rng.normal(size=(40, 4)), np.arange(40) % 3, rng.normal(size=(20, 4))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_doctor_checks, "available_memory", lambda: 8 * 2**30)
    np.savez("source.npz", X=XS, y=YS)
    np.savez("target.npz", X=XT)
    return tmp_path


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, words)])


def levels(result: Result, subject: str) -> list[str]:
    """Return the levels of the lines about a subject."""
    return [line[:5].strip() for line in result.stdout.splitlines() if line[6:24].strip() == subject]


def test_a_sound_machine_passes() -> None:
    result = run()
    assert result.exit_code == 0, result.output
    for subject in ("Python", "numpy", "torch", "CPU", "threads", "numba cache", "memory", "exact plan",
                    "entropic plan"):  # fmt: skip
        assert levels(result, subject) in (["ok"], ["warn"]), subject
    assert re.search(r"^\d+ ok, \d+ to look at, 0 to fix$", result.stdout, flags=re.MULTILINE)
    assert "source" not in result.stdout


def test_sound_data_passes() -> None:
    result = run("source.npz", "target.npz")
    assert result.exit_code == 0, result.output
    for subject in ("source", "target", "widths", "classes", "target labels", "constant", "duplicates", "spread",
                    "rows"):  # fmt: skip
        assert levels(result, subject) == ["ok"], subject
    assert "the smallest, '1', has 13 samples" in result.stdout
    np.savez("target.npz", X=XT, y=np.arange(20) % 2)
    assert "training ignores them" in run("source.npz", "target.npz").stdout


def test_old_and_absent_packages_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    asked = ["numpy>=1000", "nowhere>=1", "scipy>=1", 'absent>=1; extra == "parquet"', 'tool>=1; extra == "dev"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: asked)
    result = run()
    assert result.exit_code == 1
    assert [levels(result, name) for name in ("numpy", "nowhere", "scipy", "absent", "tool")] == [
        ["fail"], ["fail"], ["ok"], ["ok"], []
    ]  # fmt: skip
    assert f"{real('numpy')}, but >=1000 is needed. Run: pip install --upgrade 'numpy>=1000'" in result.stdout
    assert "not installed. Run: pip install 'nowhere>=1'" in result.stdout
    assert "pip install 'warmpot[parquet]'" in result.stdout


def test_a_check_that_raises_is_one_line_and_the_others_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise OSError("libtorch.so:\nno such file")

    monkeypatch.setitem(_doctor_checks.CHECKS, "devices", broken)
    result = run()
    assert result.exit_code == 1
    assert "fail  devices           OSError: libtorch.so: no such file. Reinstall" in result.stdout
    assert levels(result, "exact plan") == ["ok"]


def test_a_plan_without_its_certificate_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    real = warmpot.transport.solve_partial
    monkeypatch.setattr(warmpot.transport, "solve_partial", lambda *args, **kwargs: real(
        *args, **{**kwargs, "max_iter": 1, "eps": 1e-3}))  # fmt: skip
    result = run()
    assert result.exit_code == 1
    assert levels(result, "entropic plan") == ["fail"]


def test_little_memory_too_many_threads_and_no_cache_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(_doctor_checks, "available_memory", lambda: 2**29)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    result = run()
    assert result.exit_code == 0
    assert [levels(result, subject) for subject in ("memory", "threads", "numba cache")] == [["warn"]] * 3
    assert "OMP_NUM_THREADS" in result.stdout
    assert "NUMBA_CACHE_DIR" in result.stdout


def test_memory_is_read_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    free = _doctor_checks.available_memory()
    assert free is None or free > 0
    monkeypatch.setattr(_doctor_checks, "available_memory", lambda: None)
    assert next(_doctor_checks.check_memory()) == Finding("ok", "memory", "unknown on this system")


DATA: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], tuple[str, str, str], int]] = {
    "NaN": ({"X": XS * np.nan, "y": YS}, {"X": XT}, [], ("fail", "source", "160 non-finite"), 1),
    "widths": ({"X": XS, "y": YS}, {"X": XT[:, :2]}, [], ("fail", "task", "2 columns; allowed: 4"), 1),
    "no labels": ({"X": XS}, {"X": XT}, [], ("fail", "task", "got no labels"), 1),
    "one class": ({"X": XS, "y": YS * 0}, {"X": XT}, [], ("fail", "task", "one class only"), 1),
    "continuous targets": ({"X": XS, "y": XS[:, 0]}, {"X": XT}, [], ("fail", "source", "--regression"), 1),
    "label key": ({"X": XS, "z": YS}, {"X": XT}, ["--label", "y"], ("fail", "source", "a key 'y'"), 1),
    "single": (
        {"X": XS, "y": np.where(np.arange(40), YS, 7)}, {"X": XT}, [], ("warn", "classes", "one sample: '7'"), 0
    ),
    "other classes": ({"X": XS, "y": YS}, {"X": XT, "y": np.full(20, 9)}, [], ("warn", "classes", "source lacks"), 0),
    "constant": (
        {"X": XS * [1, 1, 0, 1], "y": YS}, {"X": XT * [1, 1, 0, 1]}, [], ("warn", "constant", "1 feature (2;"), 0
    ),
    "constant once": ({"X": XS, "y": YS}, {"X": XT * [0, 1, 1, 1]}, [], ("warn", "constant", "one side only"), 0),
    "duplicates": ({"X": XS, "y": YS}, {"X": np.vstack([XT, XS[:3]])}, [], ("warn", "duplicates", "3 of 23"), 0),
    "the same": ({"X": XS, "y": YS}, {"X": XS}, [], ("fail", "duplicates", "two different files"), 1),
    "spread": ({"X": XS * [1, 1e4, 1, 1], "y": YS}, {"X": XT}, [], ("warn", "spread", "full and frozen do so"), 0),
    "units": ({"X": XS, "y": YS}, {"X": 50 * XT}, [], ("warn", "rows", "different units"), 0),
    "long": ({"X": 1e4 * XS, "y": YS}, {"X": 1e4 * XT}, [], ("warn", "rows", "use preset full or frozen"), 0),
}  # fmt: skip


@pytest.mark.parametrize("case", DATA)
def test_problems_of_the_data_are_reported(case: str) -> None:
    source, target, flags, (level, subject, text), code = DATA[case]
    np.savez("source.npz", **source)
    np.savez("target.npz", **target)
    result = run("source.npz", "target.npz", *flags)
    assert result.exit_code == code, result.output
    assert any(line.startswith(f"{level:<6}{subject:<18}") and text in line for line in result.stdout.splitlines()), (
        result.stdout
    )


def test_files_that_cannot_be_read_fail_each_on_its_own() -> None:
    for name in ("source.npz", "other.npz"):
        Path(name).write_bytes(b"no zip")
    result = run("source.npz", "other.npz")
    assert result.exit_code == 1
    assert levels(result, "source") == levels(result, "target") == ["fail"]


def test_labels_under_another_name_and_continuous_targets() -> None:
    np.savez("source.npz", X=XS, z=YS)
    assert run("source.npz", "target.npz", "--label", "z").exit_code == 0
    np.savez("source.npz", X=XS, y=XS @ np.ones(4))
    result = run("source.npz", "target.npz", "--regression")
    assert result.exit_code == 0
    assert levels(result, "classes") == []


def test_one_file_is_a_usage_error() -> None:
    result = run("source.npz")
    assert (result.exit_code, "two files or none" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("header", "level", "said"),
    [
        ("a,b,c,d", "ok", "the same 4 columns in the same order"),
        ("d,a,b,c", "ok", "another order; they are matched by name"),
        ("a,b,c,e", "fail", "no column 'd' and extra columns 'e'"),
        ("", "warn", "only the source has column names"),
    ],
)
def test_names_of_columns_are_compared(header: str, level: str, said: str) -> None:
    np.savetxt("s.csv", np.column_stack([XS, YS]), delimiter=",", header="a,b,c,d,label", comments="")
    np.savetxt("t.csv", XT, delimiter=",")
    Path("t.csv").write_text((header and f"{header}\n") + Path("t.csv").read_text())
    result = run("s.csv", "t.csv")
    assert levels(result, "names") == [level]
    assert said in result.stdout
    assert result.exit_code == (level == "fail")


def test_without_column_names_there_is_no_line_about_them() -> None:
    assert levels(run("source.npz", "target.npz"), "names") == []


def test_what_fails_is_repeated_on_stderr_as_errors(tmp_path: Path) -> None:
    for side, broken in (("s", 1), ("t", 2)):
        (folder := tmp_path / side / "a").mkdir(parents=True)
        for k in range(2):
            Image.new("RGB", (8, 8), (k, 0, 0)).save(folder / f"{k}.png")
        for k in range(broken):
            (folder / f"{k}.png").write_bytes(b"broken")
    result = run(tmp_path / "s", tmp_path / "t")
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in errors] == ["source", "target", "target"]
    assert all(".png: " in line for line in errors)
    assert levels(result, "target") == ["ok", "fail", "fail"]  # no image of it is left, and the rest is reported
    assert "3 to fix" in result.stdout


def test_the_network_of_images_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("needs timm")
    from warmpot.nets import backbone

    def check(name: str, weights: str) -> list[Finding]:
        return list(_doctor_checks._check_network(backbone.BackboneSettings(name, weights)))

    (good,) = check("test_resnet", "none")
    assert good.level == "ok"
    assert good.text.endswith("blocks for --train-from: conv1, bn1, layer1, layer2, layer3, layer4")
    (bad,) = check("test_resnet", str(tmp_path / "none.pth"))
    assert (bad.level, "none.pth" in bad.text) == ("fail", True)
    (unknown,) = check("resnett50", "none")
    assert (unknown.level, "Did you mean" in unknown.text) == ("fail", True)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    (away,) = check("resnet50.tv_in1k", "pretrained")
    assert (away.level, "not on this machine" in away.text) == ("warn", True)
    assert backbone.last_block("vit_tiny_patch16_224") == "blocks.11"


def test_sentences_about_features_agree_in_number() -> None:
    for still, said in (([1], "1 feature (1; counted from 0) is constant"), ([1, 2], "2 features (1, 2; counted")):
        x = np.random.default_rng(0).normal(size=(24, 4))
        x[:, still] = 1.0
        np.savez("source.npz", X=x, y=np.arange(24) % 4)
        np.savez("target.npz", X=x[::-1] + 0.1)
        assert said in run("source.npz", "target.npz").stdout
