"""Images: views, unusual and broken files, workers, folders, lists, datasets (`images`, `pixels`, `workers`)."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from warmpot._settings import from_mapping, to_mapping
from warmpot.data import as_table
from warmpot.data.images import (
    drop_samples,
    image_folder,
    image_list,
    images_from_dataset,
    is_images,
    load_images,
)
from warmpot.data.pixels import Pixels, ViewSettings, as_rgb, find_corrupt, open_image
from warmpot.data.table import LazyRows
from warmpot.data.workers import map_in_workers
from warmpot.errors import InputError, WarmpotError

SIDE = 64
SMALL = ViewSettings(resize=SIDE, crop=48)
STEP = 4
"""Colours are this many times the column (red) or the row (green)."""


def ramp(blue: int = 0, side: int = SIDE) -> Image.Image:
    """An image whose colours encode the position of each pixel."""
    down, across = np.indices((side, side))
    return Image.fromarray(np.stack([STEP * across, STEP * down, np.full_like(down, blue)], axis=2).astype(np.uint8))


def flat(colour: Any = (10, 20, 30), mode: str = "RGB", size: tuple[int, int] = (8, 8)) -> Image.Image:
    return Image.new(mode, size, colour)


def put(path: Path, image: Image.Image | bytes | None = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(image, bytes):
        path.write_bytes(image)
    else:
        (image or flat()).save(path, **options)
    return path


def pixels_of(*images: Image.Image, view: ViewSettings = SMALL) -> Pixels:
    return Pixels(images, Image.Image.copy, view, stamp=lambda image: image.tobytes().hex())


def opened(path: Path) -> np.ndarray:
    """The top left pixel of a file, through the folder reader."""
    x = image_folder(path.parent, view=ViewSettings(resize=8, crop=8)).x
    return x[0][:, 0, 0]


def window(view: np.ndarray) -> tuple[int, int, bool]:
    """Left, top and mirroring of a crop of `ramp`."""
    across, down = view[0, 0] / STEP, view[1, :, 0] / STEP
    mirrored = bool(across[0] > across[-1])
    return int(across.min()), int(down[0]), mirrored


# Views


def test_test_view_is_the_centre() -> None:
    view = pixels_of(ramp(7))[0]
    assert view.shape == (3, 48, 48)
    assert view.dtype == np.uint8
    np.testing.assert_array_equal(view[0], np.broadcast_to(STEP * np.arange(8, 56), (48, 48)))
    np.testing.assert_array_equal(view[1], view[0].T)
    assert (view[2] == 7).all()


@given(seed=st.integers(0, 2**40), draw=st.integers(0, 2**62))
def test_a_random_view_is_a_crop_or_its_mirror_image(seed: int, draw: int) -> None:
    view = pixels_of(ramp()).augmented([0], [draw], seed)[0]
    left, top, mirrored = window(view)
    assert 0 <= left <= 16
    assert 0 <= top <= 16
    whole = np.asarray(ramp()).transpose(2, 0, 1)[:, top : top + 48, left : left + 48]
    np.testing.assert_array_equal(view, whole[:, :, ::-1] if mirrored else whole)


def test_random_views_are_uniform() -> None:
    n = 1000
    found = [window(view) for view in pixels_of(ramp()).augmented(np.zeros(n, int), np.arange(n), 3)]
    for place in (0, 1):
        counts = np.bincount([window_[place] for window_ in found], minlength=17)
        assert len(counts) == 17
        assert counts.min() > n / 17 / 2  # 5 standard deviations
    assert abs(np.mean([mirrored for *_, mirrored in found]) - 0.5) < 5 * 0.5 / np.sqrt(n)


def test_a_draw_depends_on_seed_and_number_only() -> None:
    images = [ramp(blue) for blue in range(6)]
    x = pixels_of(*images)
    views = x.augmented(slice(None), [5, 6, 7, 8, 9, 5], 1)
    assert (views[:, 2, 0, 0] == range(6)).all()
    windows = [window(view) for view in views]
    assert windows[0] == windows[5]
    assert len(set(windows)) == 5
    np.testing.assert_array_equal(x.augmented([3, 0], [8, 5], 1), views[[3, 0]])
    np.testing.assert_array_equal(x.subset([3]).augmented([0], [8], 1)[0], views[3])
    assert not np.array_equal(x.augmented([3], [8], 2)[0], views[3])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(Pixels(images, Image.Image.copy, SMALL)))[:], x[:])


def test_without_augmentation_training_sees_the_test_view() -> None:
    x = pixels_of(ramp()).with_view(ViewSettings(SIDE, 48, augment=False))
    np.testing.assert_array_equal(x.augmented([0, 0], [1, 2], 0), x[[0, 0]])


def test_without_flip_the_crops_stay() -> None:
    draws = np.arange(50)
    x = pixels_of(ramp())
    plain = x.with_view(ViewSettings(SIDE, 48, flip=False))
    found, kept = ([window(v) for v in one.augmented(0 * draws, draws, 0)] for one in (x, plain))
    assert [w[:2] for w in found] == [w[:2] for w in kept]
    assert {w[2] for w in found} == {False, True}
    assert {w[2] for w in kept} == {False}


def test_resized_crops_keep_area_and_ratio_in_their_ranges() -> None:
    n, side = 300, 60
    view = ViewSettings(resize=side, crop=48, crops="resized", flip=False)
    views = pixels_of(ramp(side=side), view=view).augmented(np.zeros(n, int), np.arange(n), 0).astype(float)
    width = (views[:, 0, 24, 44] - views[:, 0, 24, 4]) / STEP * 48 / 40
    height = (views[:, 1, 44, 24] - views[:, 1, 4, 24]) / STEP * 48 / 40
    share, ratio = width * height / side**2, width / height
    assert 0.06 < share.min() < 0.15
    assert 0.9 < share.max() < 1.02
    assert 0.70 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.42
    assert len(np.unique(views, axis=0)) > 0.95 * n


def test_the_square_does_not_keep_the_aspect() -> None:
    image = flat((255, 0, 0), size=(40, 10))
    image.paste((0, 0, 255), (20, 0, 40, 10))
    view = pixels_of(image, view=ViewSettings(resize=8, crop=8, interpolation="nearest"))[0]
    assert (view[0] == [255] * 4 + [0] * 4).all()
    assert (view[2] == [0] * 4 + [255] * 4).all()


def test_rows_by_number_slice_and_mask() -> None:
    x = pixels_of(*(ramp(blue) for blue in range(5)))
    blues = lambda views: views[..., 2, 0, 0].tolist()  # noqa: E731
    assert blues(x[[4, 0, 4]]) == [4, 0, 4]
    assert blues(x[1:3]) == [1, 2]
    assert blues(x[np.array([True, False, False, True, False])]) == [0, 3]
    assert blues(x[-1]) == 4
    assert blues(x.subset([3, 1]).subset([1])[:]) == [1]
    assert x[[]].shape == (0, 3, 48, 48)
    assert (x.shape, x.ndim, x.dtype, len(x)) == ((5, 3, 48, 48), 4, np.uint8, 5)
    assert isinstance(x, LazyRows)
    with pytest.raises(IndexError):
        x[5]


@pytest.mark.parametrize("draws", [[0], [0, 1, 2], [0.0, 1.0], [-1, 0]])
def test_draws_must_fit(draws: list[Any]) -> None:
    with pytest.raises(InputError, match=r"draws: got .* allowed: 2 integers >= 0"):
        pixels_of(ramp(), ramp()).augmented([0, 1], draws, 0)


@pytest.mark.parametrize(
    ("setting", "value", "match"),
    [
        ("resize", 0, "resize: got 0"),
        ("crop", 257, "crop: got crop 257 of resize 256"),
        ("crop", True, "crop: got True"),
        ("resize", 10**6, "<= 8192"),
        ("interpolation", "linear", "'bilinear'"),
        ("crops", "centre", "'random' or 'resized'"),
        ("flip", 1, "flip: got 1"),
        ("augment", "yes", "augment: got 'yes'"),
    ],
)
def test_settings_are_checked(setting: str, value: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        ViewSettings(**{setting: value})
    assert from_mapping(ViewSettings, to_mapping(SMALL), "view") == SMALL


def test_fingerprint(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        put(tmp_path / "one" / name)
        put(tmp_path / "two" / name)
    x = image_folder(tmp_path / "one").x
    assert x.fingerprint() == image_folder(tmp_path / "two").x.fingerprint(), "the place does not matter"
    others = [x.subset([0, 1]), x.subset([1, 0, 2]), image_folder(tmp_path / "one", view=SMALL).x]
    assert len({one.fingerprint() for one in [x, *others]}) == 4
    before = x.fingerprint()
    put(tmp_path / "one" / "a" / "2.png", ramp())
    changed = x.fingerprint()
    (tmp_path / "one" / "a" / "2.png").unlink()
    assert len({before, changed, x.fingerprint()}) == 3


# Kinds of files

KINDS: dict[str, tuple[Image.Image, str, dict[str, Any], tuple[int, int, int]]] = {
    "grey": (flat(90, "L"), "x.png", {}, (90, 90, 90)),
    "one bit": (flat(1, "1"), "x.png", {}, (255, 255, 255)),
    "palette": (flat((200, 100, 0)).quantize(4), "x.png", {}, (200, 100, 0)),
    "palette with transparency": (
        flat((200, 100, 0)).quantize(4),
        "x.png",
        {"transparency": b"\x80\x80"},
        (200, 100, 0),
    ),
    "palette with a transparent colour": (flat((200, 100, 0)).quantize(4), "x.gif", {"transparency": 0}, (200, 100, 0)),
    "transparency": (flat((9, 8, 7, 0), "RGBA"), "x.png", {}, (9, 8, 7)),
    "grey with transparency": (flat((50, 0), "LA"), "x.png", {}, (50, 50, 50)),
    "transparent colour": (flat((9, 8, 7)), "x.png", {"transparency": (9, 8, 7)}, (9, 8, 7)),
    "16 bits": (Image.fromarray(np.full((8, 8), 0x80FF, np.uint16)), "x.png", {}, (128, 128, 128)),
    "16 bits in tiff": (Image.fromarray(np.full((8, 8), 0x80FF, np.uint16)), "x.tiff", {}, (128, 128, 128)),
    "cmyk": (flat((0, 255, 255, 0), "CMYK"), "x.tif", {}, (255, 0, 0)),
    "another extension": (flat(), "x.JPEG", {"format": "PNG"}, (10, 20, 30)),
    "bmp": (flat(), "x.bmp", {}, (10, 20, 30)),
    "ppm": (flat(), "x.ppm", {}, (10, 20, 30)),
    "webp": (flat(), "x.WebP", {"format": "WEBP", "lossless": True}, (10, 20, 30)),
    "frames": (flat(), "x.gif", {"save_all": True, "append_images": [flat((90, 90, 90))]}, (10, 20, 30)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_becomes_rgb(tmp_path: Path, kind: str) -> None:
    image, name, options, colour = KINDS[kind]
    assert opened(put(tmp_path / name, image, **options)).tolist() == list(colour)


def test_conversion_does_not_warn(tmp_path: Path) -> None:
    image, name, options, colour = KINDS["palette with transparency"]
    with open_image(put(tmp_path / name, image, **options)) as stored:  # warnings are errors here
        assert as_rgb(stored).getpixel((0, 0)) == colour


def test_cmyk_jpeg_is_read(tmp_path: Path) -> None:
    red, green, blue = opened(put(tmp_path / "x.jpg", flat((0, 255, 255, 0), "CMYK"))).astype(int)
    assert red > 240
    assert max(green, blue) < 15


def test_orientation_stays_as_stored(tmp_path: Path) -> None:
    image, exif = flat((255, 0, 0)), Image.Exif()
    image.paste((0, 0, 255), (0, 4, 8, 8))
    exif[0x0112] = 6  # a quarter turn
    x = image_folder(put(tmp_path / "x.png", image, exif=exif).parent, view=ViewSettings(8, 8)).x
    np.testing.assert_array_equal(x[0], np.asarray(image).transpose(2, 0, 1))


# Corrupt files


def jpeg(tmp_path: Path) -> bytes:
    return put(tmp_path / "whole" / "good.jpg", ramp()).read_bytes()


CORRUPT: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda _: b"", "a file that is not an image"),
    "text": (lambda _: b"<html>404</html>", "a file that is not an image"),
    "truncated": (lambda folder: jpeg(folder)[:-400], "(?i:truncated)"),
    "head only": (lambda folder: jpeg(folder)[:200], ""),
    "postscript": (lambda _: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "a file that is not an image"),
    "float": (lambda _: Image.fromarray(np.zeros((8, 8), np.float32)), "floating-point"),
    "32 bits": (lambda _: Image.fromarray(np.full((8, 8), 70000, np.int32)), "beyond 16 bits"),
}


@pytest.mark.parametrize("kind", CORRUPT)
def test_a_corrupt_file_is_named(tmp_path: Path, kind: str) -> None:
    make, reason = CORRUPT[kind]
    content = make(tmp_path)
    path = put(tmp_path / "x" / "a b é.tif", content)
    x = image_folder(path.parent).x
    with pytest.raises(InputError, match=f"a b é.tif: got .*{reason}.*--corrupt skip"):
        x[:]
    with pytest.raises(InputError, match=r"a b é.tif"):
        x.augmented([0], [0], 0)
    assert list(find_corrupt(x)) == [0]


def test_a_deleted_file_is_named(tmp_path: Path) -> None:
    path = put(tmp_path / "gone.png")
    x = image_folder(tmp_path).x
    path.unlink()
    with pytest.raises(InputError, match=r"gone\.png: got No such file or directory"):
        x[0]
    path.mkdir()
    assert "directory" in find_corrupt(x)[0].lower()


@pytest.mark.parametrize("limit", [40, 20])
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    put(tmp_path / "x.png")  # 64 pixels; Pillow warns beyond the limit and raises beyond its double
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "exceeds limit" in find_corrupt(image_folder(tmp_path).x)[0]


@given(data=st.data())
@settings(max_examples=100)
def test_damage_never_raises_anything_else(tmp_path: Path, data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from(["jpg", "png", "gif", "tiff", "bmp", "webp", "ppm"]))
    original = tmp_path / f"original.{suffix}"
    content = bytearray((original if original.exists() else put(original, ramp())).read_bytes())
    places = data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8))
    for place, value in places:
        content[place] = value
    put(tmp_path / "bad" / "x.png", bytes(content[: data.draw(st.integers(0, len(content)))]))
    found = image_folder(tmp_path / "bad").x.decode(0)
    assert isinstance(found, str) or found.mode == "RGB"
    assert found != ""


def test_corrupt_files_are_found_and_dropped(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png", "b/1.png", "c/1.png"):
        put(tmp_path / name)
    put(tmp_path / "a" / "2.png", b"bad")
    put(tmp_path / "b" / "1.png", b"")
    table, lines = image_folder(tmp_path, view=SMALL), []
    bad = find_corrupt(table.x, report=lambda share, text: lines.append((share, text)))
    assert bad == find_corrupt(table.x, workers=2)
    assert list(bad) == [1, 2]
    assert lines == [(1.0, "4 of 4 images, 2 corrupt")]
    good = drop_samples(table, bad)
    assert good.names == ("a/1.png", "c/1.png")
    assert good.y.tolist() == [0, 2]
    assert good.classes == ("a", "b", "c")
    assert good.x[:].shape == (2, 3, 48, 48)
    with pytest.raises(InputError, match="no remaining samples"):
        drop_samples(table, range(4))
    assert drop_samples(as_table([[1.0], [2.0]], ["u", "v"]), [0]).x.tolist() == [[2.0]]


# Workers


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_do_not_depend_on_workers(workers: int) -> None:
    x = Pixels([ramp(blue) for blue in range(7)], Image.Image.copy, SMALL)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    here, there = list(x.batches(3)), list(x.batches(3, workers))
    assert [len(batch) for batch in there] == [3, 3, 1]
    assert all(batch.dtype == torch.uint8 for batch in there)
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))
    np.testing.assert_array_equal(torch.cat(there).numpy(), x[:])
    assert torch.equal(torch.get_rng_state(), state), "training's random numbers are not touched"


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_worker_comes_back_as_it_was(tmp_path: Path, workers: int) -> None:
    put(tmp_path / "1.png")
    path = put(tmp_path / "2.png", b"bad")
    with pytest.raises(InputError) as caught:
        list(image_folder(tmp_path, view=SMALL).x.batches(1, workers))
    assert str(caught.value).startswith(f"{path}: got a file that is not an image")
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_jobs_may_be_endless(workers: int) -> None:
    assert list(islice(map_in_workers(str, count(), workers), 5)) == ["0", "1", "2", "3", "4"]


def test_arrays_stay_arrays() -> None:
    (found,) = map_in_workers(np.arange, [3], 1)
    assert isinstance(found, np.ndarray)


def test_a_worker_that_dies_is_explained() -> None:
    with pytest.raises(WarmpotError, match=r"workers: got a dead process .* --workers 0"):
        list(map_in_workers(os._exit, [1], 1))


def test_workers_are_counted() -> None:
    with pytest.raises(InputError, match="workers"):
        map_in_workers(str, [], -1)
    with pytest.raises(InputError, match="size"):
        pixels_of(ramp()).batches(0)


# Folders


def test_folder(tmp_path: Path) -> None:
    names = ["Ünder/2.JPG", "Ünder/10.jpg", "<script>/deep er/a b.png", "<script>/b.gif", "two words/c.tif"]
    for name in names:
        put(tmp_path / name)
    put(tmp_path / "two words" / ".hidden.png", b"")
    put(tmp_path / "two words" / "notes.txt", b"a file that is not an image")
    put(tmp_path / ".cache" / "x.png", b"")
    (tmp_path / "empty").mkdir()
    put(tmp_path / "readme.md", b"")
    table = image_folder(tmp_path, view=SMALL)
    assert table.classes == ("<script>", "empty", "two words", "Ünder")
    assert table.names == (
        "<script>/b.gif", "<script>/deep er/a b.png", "two words/c.tif", "Ünder/10.jpg", "Ünder/2.JPG",
    )  # fmt: skip
    assert table.y.tolist() == [0, 0, 2, 3, 3]
    assert table.y.dtype == np.int64
    assert table.name == str(tmp_path)
    assert table.x[:].shape == (5, 3, 48, 48)
    assert "5 x 3 x 48 x 48" in repr(table)


def test_an_accent_is_one_letter_however_it_is_stored(tmp_path: Path) -> None:
    put(tmp_path / "one" / "cafe\u0301" / "x.png")
    put(tmp_path / "two" / "caf\u00e9" / "x.png")
    one, two = (image_folder(tmp_path / name) for name in ("one", "two"))
    assert one.classes == two.classes == ("caf\u00e9",)
    assert one.x[:].shape[0] == 1
    put(tmp_path / "two" / "cafe\u0301" / "x.png")
    with pytest.raises(InputError, match="more than once"):
        image_folder(tmp_path / "two")


def test_folder_without_classes_is_unlabelled(tmp_path: Path) -> None:
    put(tmp_path / "b.png")
    put(tmp_path / "a.png")
    table = image_folder(tmp_path)
    assert (table.y, table.classes, table.names) == (None, (), ("a.png", "b.png"))


def test_folder_with_given_classes(tmp_path: Path) -> None:
    put(tmp_path / "d" / "mug" / "x.png")
    put(tmp_path / "classes.txt", "\ufeffpen\r\nmug\r\n\r\n".encode())
    for classes in (tmp_path / "classes.txt", str(tmp_path / "classes.txt"), ["pen", "mug"], np.array(["pen", "mug"])):
        table = image_folder(tmp_path / "d", classes=classes)
        assert (table.y.tolist(), table.classes) == ([1], ("pen", "mug"))
    for classes in (["pen"], []):
        with pytest.raises(InputError, match="classes"):
            image_folder(tmp_path / "d", classes=classes)


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ([], "no images"),
        (["a/x.txt"], "no images; allowed: files .jpg"),
        (["x.png", "a/x.png"], r"images \('x.png'\) next to folders \('a'\)"),
        (
            ["images/a/x.png", "images/b/x.png"],
            r"one folder 'images', which contains folders \('a', 'b'\).*Name '.*images'",
        ),
    ],
)
def test_folders_that_cannot_be_read(tmp_path: Path, files: list[str], match: str) -> None:
    for name in files:
        put(tmp_path / name, None if name.endswith("png") else b"")
    with pytest.raises(InputError, match=match):
        image_folder(tmp_path)


def test_folder_of_one_class_may_be_deep(tmp_path: Path) -> None:
    put(tmp_path / "a" / "one" / "x.png")
    assert image_folder(tmp_path).classes == ("a",)
    put(tmp_path / "a" / "x.png")
    put(tmp_path / "a" / "two" / "x.png")
    assert image_folder(tmp_path).n == 3


def test_links(tmp_path: Path) -> None:
    put(tmp_path / "all" / "mug" / "x.png")
    part = tmp_path / "part"
    part.mkdir()
    (part / "mug").symlink_to(tmp_path / "all" / "mug")
    (tmp_path / "all" / "mug" / "again").symlink_to(tmp_path / "all" / "mug")
    assert image_folder(part).names == ("mug/x.png",)
    (part / "mug" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (part / "itself").symlink_to(part / "itself")
    with pytest.raises(InputError, match=r"2 broken links: 'mug/gone.png', 'itself'"):
        image_folder(part)


@pytest.mark.parametrize("name", ["absent", "file.png"])
def test_no_folder(tmp_path: Path, name: str) -> None:
    put(tmp_path / "file.png")
    with pytest.raises(InputError, match=f"{name}: got .* a folder you may read"):
        image_folder(tmp_path / name)


@pytest.mark.skipif(os.name == "nt", reason="names of files are texts there")
def test_a_file_name_that_is_not_valid_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    flat().save(tmp_path / "x.png")
    os.rename(tmp_path / "x.png", os.fsencode(tmp_path / "a") + b"/\xff.png")
    table = image_folder(tmp_path, view=SMALL)
    assert table.x[:].shape[0] == 1
    assert len(table.x.fingerprint()) == 16


# Lists


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("d/mug/a b.jpg", "d/mug/2.jpg", "d/pen/é.png", "plain", "d/comma, here/x.jpg"):
        put(tmp_path / name, format="PNG")
    return tmp_path


def listed(folder: Path, text: str, name: str = "list.txt", **options: Any) -> Any:
    (folder / name).write_bytes(text.encode())
    return image_list(folder / name, **options)


THREE = ["d/mug/a b.jpg", "d/mug/2.jpg", "d/pen/é.png"]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("between", [" ", "\t", "  \t", ",", " , "])
@pytest.mark.parametrize(
    ("name", "head"), [("l.txt", ""), ("l.LST", ""), ("l.list", "Path,label"), ("l.csv", "path,y")]
)
def test_lists_of_every_form(root: Path, ends: str, bom: str, between: str, name: str, head: str) -> None:
    if name == "l.csv" and "," not in between:
        between = ","
    lines = [
        *([head] if head else []),
        *(f"{path}{between}{y}" for path, y in zip(THREE, (7, 7, 3), strict=True)),
        "",
        "",
    ]
    table = listed(root, bom + ends.join(lines), name)
    assert table.names == tuple(THREE)
    assert table.classes == ("pen", "mug")
    assert table.y.tolist() == [1, 1, 0]
    assert table.name == str(root / name)
    assert table.x.shape == (3, 3, 224, 224)


def test_numbers_are_named_by_folders_so_that_lists_agree(root: Path) -> None:
    one = listed(root, "d/mug/2.jpg 0\nd/pen/é.png 1\n")
    two = listed(root, "d/mug/2.jpg 1\nd/pen/é.png 0\n")
    named = [{name: table.classes[y] for name, y in zip(table.names, table.y, strict=True)} for table in (one, two)]
    assert named[0] == named[1] == {"d/mug/2.jpg": "mug", "d/pen/é.png": "pen"}


@pytest.mark.parametrize(
    ("text", "classes", "y"),
    [
        ("d/mug/2.jpg 0\nd/mug/a b.jpg 1\n", ("0", "1"), [0, 1]),  # one folder, two labels
        ("d/mug/2.jpg 4\nd/pen/é.png 4\n", ("4",), [0, 0]),  # one label, two folders
        ("d/mug/2.jpg 10\nd/pen/é.png 9\nd/mug/a b.jpg 9", ("9", "10"), [1, 0, 0]),
        ("plain 5\n", ("5",), [0]),
        ("d/mug/2.jpg -1\n", ("mug",), [0]),
        ("d/mug/2.jpg coffee mug\nd/pen/é.png <script>\n", ("<script>", "coffee mug"), [1, 0]),
        ("d/mug/2.jpg 3\nd/pen/é.png pen\n", ("3", "pen"), [0, 1]),
        ("d/comma, here/x.jpg,zebra\nplain\tapple", ("apple", "zebra"), [1, 0]),
        ("d/mug/2.jpg cafe\u0301\nd/pen/é.png caf\u00e9\n", ("caf\u00e9",), [0, 0]),
        ("d\\mug\\2.jpg 0\n./d/pen/é.png 1", ("mug", "pen"), [0, 1]),
    ],
)
def test_labels_of_lists(root: Path, text: str, classes: tuple[str, ...], y: list[int]) -> None:
    table = listed(root, text)
    assert (table.classes, table.y.tolist()) == (classes, y)


def test_csv_may_quote(root: Path) -> None:
    table = listed(root, '"d/comma, here/x.jpg","a, b"\nplain,c\n', "l.csv")
    assert table.names == ("d/comma, here/x.jpg", "plain")
    assert table.classes == ("a, b", "c")


def test_extensions_in_any_case(root: Path) -> None:
    put(root / "A B.JPG", format="PNG")
    assert listed(root, "A B.JPG").names == ("A B.JPG",)


@pytest.mark.parametrize("text", ["d/mug/a b.jpg\nd/pen/é.png\n", "d/mug/a b.jpg,\nd/pen/é.png,\n"])
def test_lists_without_labels(root: Path, text: str) -> None:
    table = listed(root, text)
    assert (table.y, table.classes, table.names) == (None, (), ("d/mug/a b.jpg", "d/pen/é.png"))


def test_absolute_paths_and_root(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("lists")
    table = listed(elsewhere, f"mug/2.jpg 0\n{root}/d/pen/é.png 1\n", root=root / "d", view=SMALL)
    assert table.x[:].shape == (2, 3, 48, 48)
    assert table.classes == ("mug", "pen")
    with pytest.raises(InputError, match="absent: got no folder"):
        listed(root, "plain 0", root=root / "absent")


def test_classes_of_lists(root: Path) -> None:
    (root / "names.txt").write_text("pen\ncup\nmug\n")
    for classes in (["pen", "cup", "mug"], root / "names.txt"):
        table = listed(root, "d/mug/2.jpg 2\nd/pen/é.png 0", classes=classes)
        assert (table.classes, table.y.tolist()) == (("pen", "cup", "mug"), [2, 0])
    assert listed(root, "d/mug/2.jpg cup", classes=["pen", "cup"]).y.tolist() == [1]
    assert listed(root, "d/mug/2.jpg 1", classes=["other", "words"]).y.tolist() == [1]
    with pytest.raises(InputError, match=r"label 0 = 'pen' for 'd/mug/2.jpg' in line 2; .*'mug'.*another order"):
        listed(root, "d/pen/é.png 0\nd/mug/2.jpg 0", classes=["pen", "cup", "mug"])
    with pytest.raises(InputError, match="label 3"):
        listed(root, "d/mug/2.jpg 3", classes=["pen", "cup", "mug"])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "no lines"),
        ("\n \r\n", "no lines"),
        ("path label\n", "no lines"),
        ("d/mug/2.jpg 0\n\nd/pen/é.png\n", r"no label in line 3 \(1 such lines\)"),
        ("d/mug/2.jpg 1 0 0\n", "3 entries after the path in line 1"),
        ("d/mug/2.jpg 0\nd/mug/2.jpg 1\n", "'d/mug/2.jpg' as '0' in line 1 and as '1' in line 2"),
        (
            "a.jpg 0\nb.jpg 0\nc.jpg 0\nd.jpg 0\nplain 1",
            "4 of 5 files missing below .*'a.jpg', 'b.jpg', 'c.jpg', 'd.jpg'",
        ),
        ("d/mug 0\n", "1 of 1 files missing"),
        (f"d/mug/2.jpg {2**70}\n", "labels of"),
        ("d/mug/2.jpg\0 1\n", "1 of 1 files missing"),
    ],
)
def test_lists_that_cannot_be_read(root: Path, text: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        listed(root, text)


def test_long_labels(tmp_path: Path) -> None:
    for name in ("1.png", "2.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    (tmp_path / "l.txt").write_text(f"1.png {'a' * 100_000}\n2.png 7\n")
    assert sorted(image_list(tmp_path / "l.txt").classes, key=len) == ["7", "a" * 100_000]
    (tmp_path / "l.txt").write_text(f"1.png {'9' * 5000}\n2.png 7\n")
    with pytest.raises(InputError, match="a number of 5000 digits"):
        image_list(tmp_path / "l.txt")


def test_lists_that_are_not_text(root: Path) -> None:
    (root / "l.txt").write_bytes(b"d/\xff.jpg 0\n")
    with pytest.raises(InputError, match=r"l.txt: got .*utf-8.*; allowed: a text file in UTF-8"):
        image_list(root / "l.txt")
    with pytest.raises(InputError, match=r"absent.txt: got No such file"):
        image_list(root / "absent.txt")
    for text, match in (("a,b,c\n", "2 entries after the path in line 1"), (",3\n", "no path in line 1")):
        with pytest.raises(InputError, match=match):
            listed(root, text, "l.csv")
    with pytest.raises(InputError, match="in line 1; allowed: a readable csv"):
        listed(root, f"{'x' * 200_000},1\n", "l.csv")


def test_which_paths_are_images(root: Path) -> None:
    (root / "list.txt").write_text("plain 0\n")
    (root / "features").mkdir()
    (root / "features" / "shards.json").write_text("{}")
    found = [is_images(root / name) for name in ("d", "list.txt", "absent.LST", "features", "x.csv", "x.npz", "absent")]
    assert found == [True, True, True, False, False, False, False]
    assert load_images(root / "d", view=SMALL).x.shape == (4, 3, 48, 48)
    assert load_images(root / "list.txt", view=SMALL).x.shape == (1, 3, 48, 48)
    assert load_images(str(root / "list.txt"), root=root, classes=["zero"]).classes == ("zero",)
    with pytest.raises(InputError, match="extract"):
        load_images(root / "features")
    with pytest.raises(InputError, match="no such folder or file"):
        load_images(root / "absent")
    with pytest.raises(InputError, match=r"suffix '.npz'"):
        load_images(put(root / "x.npz", b""))


# Datasets


class Stored(torch.utils.data.Dataset):
    """A dataset of given items, with the attributes that are given."""

    def __init__(self, items: list[Any], **attributes: Any) -> None:
        self.items, self.asked = items, 0
        vars(self).update(attributes)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, k: int) -> Any:
        self.asked += 1
        if isinstance(self.items[k], Exception):
            raise self.items[k]
        return self.items[k]


WHOLE = np.asarray(ramp())
FORMS = {
    "pillow": ramp(),
    "array": WHOLE,
    "tensor": torch.tensor(WHOLE).permute(2, 0, 1),
    "floats": torch.tensor(WHOLE).permute(2, 0, 1).float() / 255,
    "half": (torch.tensor(WHOLE).permute(2, 0, 1).double() / 255).numpy().transpose(1, 2, 0),
    "transparent": np.dstack([WHOLE, WHOLE[:, :, 0]]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_item(form: str) -> None:
    table = images_from_dataset(Stored([(FORMS[form], 4)]), view=SMALL)
    np.testing.assert_array_equal(table.x[:], pixels_of(ramp())[:])
    assert (table.y.tolist(), table.classes, table.names) == ([0], ("4",), ())
    assert table.x.fingerprint() == images_from_dataset(Stored([ramp()]), view=SMALL).x.fingerprint()


@pytest.mark.parametrize("grey", [WHOLE[:, :, 0], WHOLE[:, :, :1], torch.tensor(WHOLE[None, :, :, 0])])
def test_grey_items(grey: Any) -> None:
    x = images_from_dataset(Stored([grey]), view=SMALL).x[0]
    np.testing.assert_array_equal(x, np.broadcast_to(STEP * np.arange(8, 56), (3, 48, 48)))


@pytest.mark.parametrize(
    ("item", "match"),
    [
        (torch.zeros(3, 8, 8) - 1.5, "numbers from -1.5 .* do not normalise"),
        (torch.full((3, 8, 8), torch.nan), "numbers from nan"),
        (np.zeros((8, 8, 5), np.uint8), "5 channels"),
        (np.zeros((8, 8), np.int64), "int64"),
        (np.zeros(8, np.uint8), r"shape \(8,\)"),
        ("a.png", "str"),
        (OSError("disk"), "disk"),
    ],
)
def test_items_that_are_not_images(item: Any, match: str) -> None:
    dataset = Stored([ramp(), item], targets=[0, 1])
    table = images_from_dataset(dataset, "mine", view=SMALL)
    with pytest.raises(InputError, match=f"item 1 of mine: got .*{match}"):
        table.x[:]
    assert list(find_corrupt(table.x)) == [1]
    assert drop_samples(table, [1]).x[:].shape[0] == 1
    assert len(table.x.fingerprint()) == 16


def test_labels_of_datasets() -> None:
    items = [(ramp(), torch.tensor(1)), (ramp(9), 0)]
    passed = images_from_dataset(Stored(items, classes=["pen", "mug"]))
    stated = Stored(items, classes=["pen", "mug"], targets=torch.tensor([1, 0]))
    sampled = Stored(items, classes=["pen", "mug"], samples=[("b/é.png", 1), ("a.png", 0)])
    for table in (passed, images_from_dataset(stated), images_from_dataset(sampled)):
        assert (table.y.tolist(), table.classes) == ([1, 0], ("pen", "mug"))
    assert stated.asked == sampled.asked == 0, "no image is loaded for a label that is stated"
    assert images_from_dataset(sampled).names == ("b/é.png", "a.png")
    assert images_from_dataset(Stored([("x", "dog"), ("y", "cat")])).classes == ("cat", "dog")
    changed = Stored([(ramp(), 5), (ramp(), 6)], targets=[0, 1], target_transform=abs)
    assert images_from_dataset(changed).classes == ("5", "6")
    assert images_from_dataset(stated, classes=["a", "b"]).classes == ("a", "b")


def test_part_of_a_dataset_keeps_classes_and_names() -> None:
    whole = Stored([ramp(blue) for blue in range(3)], classes=["u", "v"], samples=[("0", 0), ("1", 1), ("2", 1)])
    part = torch.utils.data.Subset(torch.utils.data.Subset(whole, [2, 1, 0]), [0, 2])
    table = images_from_dataset(part, view=SMALL)
    assert (table.y.tolist(), table.classes, table.names) == ([1, 0], ("u", "v"), ("2", "0"))
    assert table.x[:, ...][:, 2, 0, 0].tolist() == [2, 0]
    assert whole.asked == 2


def test_datasets_without_labels_and_unusable_ones() -> None:
    for items in ([ramp()], [(ramp(),)], [(ramp(), None)]):
        assert images_from_dataset(Stored(items)).y is None
    for bad, match in ((Stored([]), "no items"), (iter([1]), "iterator"), ({}, "no items")):
        with pytest.raises(InputError, match=match):
            images_from_dataset(bad)
    with pytest.raises(InputError, match="item 1 of images: got OSError: disk"):
        images_from_dataset(Stored([(ramp(), 0), OSError("disk")]))
    with pytest.raises(InputError, match=r"item 0 of images: got .*one label"):
        images_from_dataset(Stored([(ramp(), np.zeros(3))]))


@pytest.mark.parametrize("workers", [0, 2])
def test_datasets_map_in_workers(workers: int) -> None:
    table = images_from_dataset(Stored([(ramp(blue), blue % 2) for blue in range(5)]), view=SMALL)
    assert torch.cat(list(table.x.batches(2, workers)))[:, 2, 0, 0].tolist() == [0, 1, 2, 3, 4]


# Real images


def test_real_images(shared_data: Path) -> None:
    folder = shared_data / "office31_images" / "webcam"
    if not folder.is_dir():
        pytest.skip("the images of Office-31 are not on this machine")
    table = image_folder(folder)
    assert (table.n, len(table.classes)) == (795, 31)
    with np.load(shared_data / "office31" / "webcam.npz") as known:
        assert tuple(known["classes"]) == table.classes
        np.testing.assert_array_equal(np.bincount(known["y"]), np.bincount(table.y))
    views = table.x[:794:100]
    with Image.open(folder / table.names[100]) as image:
        np.testing.assert_array_equal(views[1], np.asarray(image).transpose(2, 0, 1)[:, 16:240, 16:240])
