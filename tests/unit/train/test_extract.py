"""Extraction of features from images, and ``warmpot extract``."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner, Result

from warmpot._files import LOCK, locked
from warmpot.cli.extract import extract as verb
from warmpot.data import Table, as_table, load_features, load_table
from warmpot.data.images import image_folder, image_list
from warmpot.data.pixels import ViewSettings
from warmpot.data.table import LazyRows
from warmpot.errors import InputError, WarmpotWarning
from warmpot.train import extract as extract_module
from warmpot.train.extract import extract

VIEW = ViewSettings(resize=4, crop=4)
N, PER_SHARD = 11, 4
MADE_FROM = {"backbone": "mean colour"}


class MeanColour(nn.Module):
    """Features of an image of one colour: that colour, times `scale`. Counts images; may be interrupted."""

    def __init__(self, scale: float = 1.0, stop_after: int | None = None) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale))
        self.seen, self.stop_after = -1, stop_after  # one is tried before

    def forward(self, x: Tensor) -> Tensor:
        assert x.dtype == torch.uint8
        assert not self.training
        self.seen += len(x)
        if self.stop_after is not None and self.seen > self.stop_after:
            raise KeyboardInterrupt
        return self.scale * x.float().mean((2, 3))


def colour(row: int) -> tuple[int, int, int]:
    return row, 2 * row + 1, 255 - row


COLOURS = np.array([colour(row) for row in range(N)], dtype=np.float32)
LABELS = ["cat"] * 6 + ["dog"] * 5


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract_module, "MAX_ROWS", PER_SHARD)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of images of one colour each: 6 cats, 5 dogs, and a class without any."""
    for row, label in enumerate(LABELS):
        (tmp_path / "photos" / label).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), colour(row)).save(tmp_path / "photos" / label / f"{row:02d}.png")
    (tmp_path / "photos" / "emu").mkdir()
    return tmp_path / "photos"


@pytest.fixture
def table(photos: Path) -> Table:
    return image_folder(photos, view=VIEW)


@pytest.fixture
def run(table: Table, tmp_path: Path) -> Callable[..., Table | None]:
    """Extract from `table` to a folder, with small batches that do not fit the shards."""

    def extracted(module: nn.Module | None = None, images: Table = table, **options: Any) -> Table | None:
        options = {"out": tmp_path / "out", "made_from": MADE_FROM, "batch": 3} | options
        return extract(images, module or MeanColour(), **options)

    return extracted


@pytest.mark.parametrize(("batch", "workers"), [(1, 0), (3, 2), (64, 0)])
def test_rows_names_and_labels_are_those_of_the_images(
    run: Callable[..., Table], photos: Path, batch: int, workers: int
) -> None:
    found = run(batch=batch, workers=workers)
    assert isinstance(found.x, LazyRows)
    assert found.x.dtype == np.float32
    np.testing.assert_array_equal(found.x[:], COLOURS)
    assert found.classes == ("cat", "dog", "emu")
    assert [found.classes[code] for code in found.y.tolist()] == LABELS
    assert found.names == tuple(f"{label}/{row:02d}.png" for row, label in enumerate(LABELS))


def test_a_folder_is_a_table(run: Callable[..., Table], tmp_path: Path) -> None:
    run()
    found = load_table(tmp_path / "out")
    np.testing.assert_array_equal(found.x[[10, 0, 10, -2]], COLOURS[[10, 0, 10, 9]])
    assert load_table(tmp_path / "out", label="").y is None
    with pytest.raises(InputError, match="allowed: a column 'kind'"):
        load_table(tmp_path / "out", label="kind")
    np.testing.assert_array_equal(load_features(tmp_path / "out"), COLOURS)
    other = load_table(tmp_path / "out", classes=["emu", "dog", "cat"])
    assert [other.classes[code] for code in other.y.tolist()] == LABELS


def test_half_precision_halves_the_disk_and_rounds(run: Callable[..., Table], tmp_path: Path) -> None:
    found = run(MeanColour(0.1), dtype="float16")
    expected = (COLOURS * np.float32(0.1)).astype(np.float16)
    np.testing.assert_array_equal(found.x[:], expected.astype(np.float32))
    assert np.load(tmp_path / "out" / "shard-00000.npy").dtype == np.float16


def test_activations_keep_their_shape(run: Callable[..., Table]) -> None:
    found = run(_Halved())
    assert found.x.shape == (N, 3, 2, 2)
    np.testing.assert_array_equal(found.x[[7]], np.broadcast_to(COLOURS[7][:, None, None], (1, 3, 2, 2)))


class _Halved(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(x.float(), 2)


def test_views_are_averaged(run: Callable[..., Table], photos: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for path in photos.rglob("*.png"):
        Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)).save(path)
    table = image_folder(photos, view=ViewSettings(resize=6, crop=4))
    rows = np.arange(table.n)
    seen = np.stack([table.x[:], table.x.augmented(rows, rows, seed=1), table.x.augmented(rows, rows, seed=2)])
    features = run(images=table, out=tmp_path / "three", views=3).x[:]
    np.testing.assert_allclose(features, seen.mean(axis=(0, 3, 4)), rtol=1e-5)
    assert np.array_equal(
        run(images=table, out=tmp_path / "one", views=1).x[:], run(images=table, out=tmp_path / "x").x[:]
    )
    with pytest.raises(InputError, match="views"):
        run(images=table, out=tmp_path / "three", views=2)  # of another number
    plain = image_folder(photos, view=ViewSettings(resize=6, crop=4, augment=False))
    with pytest.raises(InputError, match="augment"):
        run(images=plain, out=tmp_path / "none", views=2)


def test_shards_get_smaller_as_rows_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert extract_module._rows_per_shard((2048,), "float32") == 256
    assert extract_module._rows_per_shard((1024, 14, 14), "float32") == 64
    assert extract_module._rows_per_shard((1024, 14, 14), "float16") == 160
    assert extract_module._rows_per_shard((1024, 100, 100), "float32") == 1


# --- interrupted and resumed


def test_an_interrupted_call_can_be_resumed(run: Callable[..., Table], tmp_path: Path) -> None:
    stopped = MeanColour(stop_after=9)  # three batches of three: two whole shards and one image
    with pytest.raises(KeyboardInterrupt):
        run(stopped)
    there = sorted(path.name for path in (tmp_path / "out").iterdir())
    pairs = [f"shard-0000{k}.{kind}" for k in range(2) for kind in ("json", "npy")]
    assert there == [*pairs, "shards.json"]
    with pytest.raises(InputError, match="an unfinished extract"):
        load_table(tmp_path / "out")
    rest = MeanColour()
    found = run(rest)
    assert rest.seen == N - 2 * PER_SHARD
    np.testing.assert_array_equal(found.x[:], COLOURS)
    again = MeanColour()
    run(again)
    assert again.seen == 0


def test_interrupted_while_decoding(run: Callable[..., Table], table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def interrupting(item: Any) -> Image.Image:
        opened.append(item)
        if len(opened) == 6:
            raise KeyboardInterrupt
        return table.x.open(item)  # type: ignore[union-attr]

    with pytest.raises(KeyboardInterrupt):
        run(images=replace(table, x=replace(table.x, open=interrupting)), batch=2)  # type: ignore[type-var]
    rest = MeanColour()
    np.testing.assert_array_equal(run(rest).x[:], COLOURS)
    assert rest.seen == N - PER_SHARD


def test_a_shard_that_was_cut_short_is_made_again(run: Callable[..., Table], tmp_path: Path) -> None:
    run()
    shard = tmp_path / "out" / "shard-00001.npy"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"shard-00001\.npy.*extract again"):
        load_table(tmp_path / "out").x[:]
    again = MeanColour()
    np.testing.assert_array_equal(run(again).x[:], COLOURS)
    assert again.seen == PER_SHARD


def test_parts_fill_one_folder(run: Callable[..., Table | None]) -> None:
    first, second = MeanColour(), MeanColour()
    assert run(first, part=(0, 2)) is None
    found = run(second, part=(1, 2))
    assert (first.seen, second.seen) == (N - PER_SHARD, PER_SHARD)
    assert found is not None
    np.testing.assert_array_equal(found.x[:], COLOURS)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"made_from": {"backbone": "other"}}, "backbone"),
        ({"module": MeanColour(2.0)}, "weights"),
        ({"dtype": "float16"}, "dtype"),
    ],
)
def test_other_rows_do_not_mix(run: Callable[..., Table], changed: dict[str, Any], named: str) -> None:
    run()
    with pytest.raises(InputError, match=rf"rows made with.*{named} .*now"):
        run(**changed)


def test_other_images_do_not_mix(run: Callable[..., Table], table: Table, photos: Path) -> None:
    run()
    Image.new("RGB", (4, 4)).save(photos / "dog" / "10.png", compress_level=0)
    with pytest.raises(InputError, match="images"):
        run(images=image_folder(photos, view=VIEW))


def test_a_folder_of_something_else_is_left_alone(run: Callable[..., Table], photos: Path) -> None:
    with pytest.raises(InputError, match="a folder with other files in it"):
        run(out=photos)
    assert not (photos / "shards.json").exists()


# --- files that are not images


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupt_file_stops_the_call_by_name(run: Callable[..., Table], photos: Path, workers: int) -> None:
    (photos / "dog" / "08.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"dog/08\.png.*skip") as caught:
        run(images=image_folder(photos, view=VIEW), workers=workers)
    assert "Traceback" not in str(caught.value)


def test_corrupt_files_are_skipped_with_a_warning(run: Callable[..., Table], photos: Path, tmp_path: Path) -> None:
    bad = [1, 4, 5, 6, 7]  # a whole shard among them
    for row in bad:
        (photos / LABELS[row] / f"{row:02d}.png").write_bytes(b"no image")
    with pytest.warns(WarmpotWarning, match=r"5 of 11 files that are not images: 'cat/01\.png', 'cat/04\.png'"):
        found = run(images=image_folder(photos, view=VIEW), corrupt="skip", batch=2)
    kept = [row for row in range(N) if row not in bad]
    np.testing.assert_array_equal(found.x[:], COLOURS[kept])
    assert [found.classes[code] for code in found.y.tolist()] == [LABELS[row] for row in kept]
    assert [name[-6:-4] for name in found.names] == [f"{row:02d}" for row in kept]
    note = json.loads((tmp_path / "out" / "shard-00000.json").read_text())
    assert note["rows"] == [0, 2, 3]
    assert "01.png" in note["bad"]["1"]


def test_a_broken_file_listed_twice_is_skipped_twice(run: Callable[..., Table], photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "01.png").write_bytes(b"no image")
    listed = tmp_path / "list.txt"
    listed.write_text("photos/cat/00.png 0\nphotos/cat/01.png 0\nphotos/cat/01.png 0\nphotos/dog/06.png 1\n")
    with pytest.warns(WarmpotWarning, match="2 of 4 files"):
        found = run(images=image_list(listed, view=VIEW), corrupt="skip")
    np.testing.assert_array_equal(found.x[:], COLOURS[[0, 6]])


def test_nothing_but_corrupt_files(run: Callable[..., Table], photos: Path) -> None:
    for path in photos.glob("*/*.png"):
        path.write_bytes(b"no image")
    with pytest.raises(InputError, match="no readable image"):
        run(images=image_folder(photos, view=VIEW), corrupt="skip")


# --- what a module and a table may be


def test_the_module_is_left_in_its_mode(run: Callable[..., Table]) -> None:
    module = nn.Sequential(MeanColour(), nn.BatchNorm1d(3), nn.Dropout())
    module[1].eval()
    run(module)
    assert [part.training for part in module.modules()] == [True, True, False, True]
    assert module[1].num_batches_tracked == 0


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (MeanColour(float("nan")), {}, r"NaN or infinity for cat/00\.png"),
        (MeanColour(1e4), {"dtype": "float16"}, "too large for float16 for cat/00.png.*float32"),
        (nn.Sequential(MeanColour(), nn.Flatten(0)), {}, r"got shape \(3,\)"),
        (None, {"part": (2, 2)}, "part"),
        (None, {"batch": 0}, "batch"),
        (None, {"corrupt": "ignore"}, "corrupt"),
    ],
)
def test_refusals(run: Callable[..., Table], module: nn.Module | None, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(module, **options)


def test_features_are_refused(run: Callable[..., Table]) -> None:
    with pytest.raises(InputError, match="a table of images"):
        run(images=as_table(COLOURS))


def test_continuous_targets_and_no_labels(run: Callable[..., Table], table: Table, tmp_path: Path) -> None:
    real = replace(table, y=np.linspace(0.1, 1, N), classes=(), names=())
    found = run(images=real)
    assert found.for_regression
    assert found.names == ()
    np.testing.assert_array_equal(found.y, real.y)
    with pytest.raises(InputError, match="labels of"):
        load_table(run(images=table, out=tmp_path / "classes").name, task="regression")
    assert run(images=replace(table, y=None, classes=()), out=tmp_path / "bare").y is None


# --- the verb


@pytest.fixture
def invoke(photos: Path, tmp_path: Path) -> Callable[..., Result]:
    app = typer.Typer()
    app.command()(verb)
    small = ["--backbone", "test_resnet", "--backbone-weights", "none", "--resize", "40", "--crop", "32",
             "--batch", "3", "--workers", "0"]  # fmt: skip

    def called(*flags: object) -> Result:
        return CliRunner().invoke(app, [str(photos), *small, *map(str, flags)])

    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    return called


def test_verb_writes_a_file_that_fit_takes(invoke: Callable[..., Result], tmp_path: Path) -> None:
    out = tmp_path / "photos.npz"
    result = invoke("--out", out, "--dtype", "float16")
    assert result.exit_code == 0, result.output
    assert "Wrote" in result.output
    found = np.load(out)
    assert sorted(found) == ["X", "classes", "path", "y"]
    assert found["X"].dtype == np.float16
    assert [str(found["classes"][code]) for code in found["y"]] == LABELS
    assert str(found["path"][7]) == "dog/07.png"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "photos.npz"]
    assert invoke("--out", tmp_path / "folder").exit_code == 0
    folder, file = load_table(tmp_path / "folder"), load_table(out)
    np.testing.assert_allclose(file.x[:], folder.x[:], rtol=1e-3, atol=1e-4)
    assert folder.names == tuple(found["path"])
    assert invoke("--out", tmp_path / "views", "--views", 2).exit_code == 0
    assert '"views": 2' in (tmp_path / "views" / "shards.json").read_text()


def test_two_verbs_do_not_write_one_file_at_once(invoke: Callable[..., Result], tmp_path: Path) -> None:
    parts = tmp_path / "photos.npz.parts"
    parts.mkdir()
    with locked(parts / f"{LOCK}-0-1", wait=False):
        result = invoke("--out", tmp_path / "photos.npz")
        assert isinstance(result.exception, InputError)
        assert "another process" in str(result.exception)
        assert invoke("--out", tmp_path / "photos.npz", "--part", "0/2").exit_code == 0  # parts are for many
    assert invoke("--out", tmp_path / "photos.npz").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "photos.npz"]


def test_verb_in_parts(invoke: Callable[..., Result], tmp_path: Path) -> None:
    out = tmp_path / "photos.npz"
    assert "other parts are missing" in invoke("--out", out, "--part", "0/2").output
    assert "without --part" in invoke("--out", out, "--part", "1/2").output
    assert not out.exists()
    result = invoke("--out", out)
    assert "11 of 11 images are done already" in result.output
    assert load_table(out).n == N


def test_verb_skips_corrupt_files_with_a_warning(invoke: Callable[..., Result], photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "02.png").write_bytes(b"no image")
    out = tmp_path / "photos.npz"
    assert "02.png" in str(invoke("--out", out).exception)
    result = invoke("--out", out, "--corrupt", "skip")
    assert "warning:" in result.output
    assert "cat/02.png" in result.output
    assert load_table(out).n == N - 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--out", "x.csv"], "a .npz file or a folder"),
        (["--out", "x", "--part", "2/2"], "--part"),
        (["--out", "x", "--part", "half"], "--part"),
        (["--out", "x", "--device", "tpu"], "device: got 'tpu'"),
        (["--out", "x", "--backbone", "test_vit"], "images.view.crop: got 32 with test_vit; allowed: 160"),
        (["--out", "x", "--workers", "-1"], "workers"),
    ],
)
def test_verb_refuses_before_any_work(
    invoke: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*flags)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]
