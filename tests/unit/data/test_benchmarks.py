"""Descriptions of data sets: the partial splits, folders with problems, and the tasks made of them."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from warmpot.cli import app
from warmpot.cli.doctor import DATASET_HELP
from warmpot.data import make_task
from warmpot.data.benchmarks import Benchmark, Domain, benchmark_names, benchmark_task, read_benchmark
from warmpot.data.pixels import ViewSettings
from warmpot.errors import InputError

SIZES = {
    "office-31": (31, 10),
    "office-home": (65, 25),
    "visda-2017": (12, 6),
    "domainnet": (126, 40),
    "imagenet-caltech": (1000, 84),
}
TINY = ViewSettings(resize=4, crop=4)
REAL = Path(__file__).parents[4] / "shared" / "data" / "office31_images"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, words)])


def make_tree(folder: Path, classes: object, images: int = 1) -> None:
    """Write tiny images into one folder per class, each with a different grey value."""
    for number, name in enumerate(classes):  # type: ignore[arg-type, var-annotated]
        (folder / name).mkdir(parents=True)
        for k in range(images):
            Image.new("L", (2, 2), (number + k) % 256).save(folder / name / f"{k}.png")


def kinds(benchmark: Benchmark, root: Path, level: str) -> list[tuple[str, str]]:
    return [(finding.domain, finding.kind) for finding in benchmark.check(root) if finding.level == level]


@pytest.fixture
def visda(tmp_path: Path) -> Path:
    for domain in ("train", "validation"):
        make_tree(tmp_path / domain, read_benchmark("visda-2017").classes)
    return tmp_path


@pytest.mark.parametrize("name", SIZES)
def test_a_split_has_its_sizes(name: str) -> None:
    benchmark = read_benchmark(name)
    assert (benchmark.n_classes, len(benchmark.shared)) == SIZES[name]
    assert len(set(benchmark.shared)) == len(benchmark.shared)
    assert len(set(benchmark.classes)) == len(benchmark.classes) in (benchmark.n_classes, 0)
    for domain in benchmark.domains:
        assert set(benchmark.shared) <= set(domain.names.values())
        assert set(domain.names) >= set(domain.counts), "a count for something that is not a class"
        assert not set(domain.others) & set(domain.names)
        assert all(domain.knows(folder) for folder in (*domain.names, *domain.others))
    for text in (benchmark.citation, benchmark.licence, benchmark.lists, benchmark.note, *benchmark.obtain):
        assert isinstance(text, str), text
        assert text


def test_every_description_is_known() -> None:
    assert benchmark_names() == sorted(SIZES)
    assert all(name in DATASET_HELP for name in benchmark_names())


@pytest.mark.parametrize(("name", "of"), [("office-home", str), ("visda-2017", str), ("domainnet", str.casefold)])
def test_shared_classes_are_the_first_ones(name: str, of: object) -> None:
    benchmark = read_benchmark(name)
    assert list(benchmark.shared) == sorted(benchmark.classes, key=of)[: len(benchmark.shared)]  # type: ignore[call-overload]


def test_numbers_of_images_are_the_published_ones() -> None:
    images = {domain.name: domain.images for name in benchmark_names() for domain in read_benchmark(name).domains}
    assert (images["amazon"], images["dslr"], images["webcam"]) == ((2817,), (498,), (795,))
    assert (images["Art"], images["Clipart"], images["Product"], images["Real World"]) == (
        (2427,), (4365,), (4439,), (4357,))  # fmt: skip
    homes = read_benchmark("office-home")
    assert [domain.shared_images for domain in homes.domains] == [1089, 1675, 1785, 1811]
    assert [domain.shared_images for domain in read_benchmark("office-31").domains] == [958, 157, 295]
    assert sum(domain.images[0] for domain in read_benchmark("domainnet").domains) == 586_575  # the cleaned release


def test_domainnet_has_345_classes() -> None:
    for domain in read_benchmark("domainnet").domains:
        assert len({*domain.names, *domain.others}) == 345
        assert domain.knows("airplane")
        assert domain.class_of("airplane") is None
        assert domain.class_of("bee") == "bee"


def test_folders_of_caltech_have_identifiers_of_imagenet() -> None:
    benchmark = read_benchmark("imagenet-caltech")
    imagenet, caltech = benchmark.domains
    assert len(caltech.names) == 84
    assert all(re.fullmatch(r"n\d{8}", word) for word in benchmark.shared)
    assert caltech.class_of("161.photocopier") == imagenet.class_of("n03924679") == "n03924679"
    assert caltech.class_of("257.clutter") is None
    assert caltech.knows("257.clutter")
    assert imagenet.class_of("n99999999") == "n99999999"
    assert not imagenet.knows("161.photocopier")


def test_identifiers_are_those_of_imagenet() -> None:
    spec = importlib.util.find_spec("timm")  # not imported: only its table is read
    table = Path(spec.origin).parent / "data" / "_info" / "imagenet_synsets.txt" if spec and spec.origin else None
    if table is None or not table.is_file():
        pytest.skip("no timm, whose table of identifiers is the reference")
    benchmark, synsets = read_benchmark("imagenet-caltech"), table.read_text().split()
    assert set(benchmark.shared) <= set(synsets)
    # Read in the list of the task, which labels images by their place among ImageNet's sorted identifiers.
    for folder, place in (("127.laptop-101", 620), ("180.screwdriver", 784), ("010.beer-mug", 441), ("194.socks", 806)):
        assert benchmark.domain("caltech").names[folder] == synsets[place]


def test_an_unknown_name_is_answered_with_a_near_one() -> None:
    with pytest.raises(InputError, match="Did you mean 'office-home'"):
        read_benchmark("officehome")
    with pytest.raises(InputError, match="Did you mean 'webcam'"):
        read_benchmark("office-31").domain("web-cam2")


@pytest.mark.parametrize("spelling", ["Real World", "RealWorld", "real_world", "real-world", "Rw", "REAL"])
def test_a_domain_is_found_under_its_spellings(tmp_path: Path, spelling: str) -> None:
    homes = read_benchmark("office-home")
    (tmp_path / spelling).mkdir()
    assert homes.find(tmp_path) == {"Real World": tmp_path / spelling}
    assert homes.domain(spelling).name == "Real World"


def test_folders_around_domains_are_passed_over(tmp_path: Path) -> None:
    classes = read_benchmark("office-31").classes
    make_tree(tmp_path / "domain_adaptation_images" / "Amazon" / "images", classes[:2])
    make_tree(tmp_path / "domain_adaptation_images" / "dslr", classes[:2])
    found = read_benchmark("office-31").find(tmp_path)
    base = tmp_path / "domain_adaptation_images"
    assert found == {"amazon": base / "Amazon" / "images", "dslr": base / "dslr"}


def test_a_class_is_not_taken_for_a_domain(visda: Path) -> None:
    (visda / "train").rename(visda.parent / "elsewhere")  # validation/train is a class
    benchmark = read_benchmark("visda-2017")
    assert benchmark.find(visda) == {"validation": visda / "validation"}
    assert kinds(benchmark, visda, "fail") == [("train", "domain")]


def test_a_complete_tree_is_complete(visda: Path) -> None:
    findings = read_benchmark("visda-2017").check(visda)
    assert [(finding.level, finding.domain, finding.kind) for finding in findings] == [
        ("ok", "train", "images"), ("ok", "validation", "images")]  # fmt: skip
    assert "complete" in findings[0].text
    assert "12 images in 12 folders, 6 of the 6 shared classes" in findings[0].text


def test_a_missing_an_extra_and_an_empty_class_are_named(visda: Path) -> None:
    (visda / "train" / "bus").rename(visda / "train" / "tram")
    (visda / "train" / "horse").rename(visda / "train" / "horses")
    (visda / "validation" / "car" / "0.png").unlink()
    benchmark = read_benchmark("visda-2017")
    assert kinds(benchmark, visda, "fail") == [("train", "missing class"), ("validation", "empty class")]
    assert kinds(benchmark, visda, "warn") == [("train", "unexpected class")]
    missing, unexpected, summary, empty, _ = benchmark.check(visda)
    assert "2 of 12 class folders missing" in missing.text
    assert "bus, horse. 'horses' looks like 'horse': rename it" in missing.text
    assert "horses, tram" in unexpected.text
    assert "complete" not in summary.text
    assert "without images: car" in empty.text


def test_a_misspelt_domain_is_recognised(visda: Path) -> None:
    (visda / "validation").rename(visda / "valdation")
    found = [finding for finding in read_benchmark("visda-2017").check(visda) if finding.domain == "validation"]
    assert [finding.level for finding in found] == ["fail"]
    assert f"{visda / 'valdation'} looks like it: rename it to 'validation'" in found[0].text


def test_missing_images_are_counted_by_class() -> None:
    domain = Domain("here", ("here",), {"cat": "cat", "dog": "dog"}, counts={"cat": 2, "dog": 3}, images=(5,))
    benchmark = Benchmark("pets", "Pets", (domain,), 2, ("cat", "dog"), ("cat",), ("a shop",), "", "", "", "")
    from warmpot.data import benchmarks

    def found(**held: int) -> list[tuple[str, str]]:
        troubles = [
            *benchmarks._check_counts(domain, held),
            benchmarks._summary(benchmark, domain, Path("here"), held, True),
        ]
        return [(finding.level, finding.text) for finding in troubles]

    assert [level for level, _ in found(cat=2, dog=3)] == ["ok"]
    short = found(cat=2, dog=1)
    assert [level for level, _ in short] == ["fail", "fail"]
    assert "dog (1 of 3)" in short[0][1]
    assert "3 images in 2 folders, 2 of the 1 shared classes; 5 images expected" in short[1][1]
    assert [level for level, _ in found(cat=4, dog=3)] == ["warn", "warn"]


def test_only_the_folders_of_the_partial_tasks_are_enough(tmp_path: Path) -> None:
    benchmark = read_benchmark("domainnet")
    for domain in ("clipart", "painting", "real", "sketch"):
        make_tree(tmp_path / domain, benchmark.classes)
    assert {finding.level for finding in benchmark.check(tmp_path)} == {"ok"}
    (tmp_path / "real" / "airplane").mkdir()  # another class of the data set
    assert kinds(benchmark, tmp_path, "warn") == []
    (tmp_path / "quickdraw").mkdir()
    assert kinds(benchmark, tmp_path, "fail")[0] == ("quickdraw", "missing class")


def test_a_task_has_the_shared_classes_in_its_target(visda: Path) -> None:
    source, target = benchmark_task("visda-2017", visda, "synthetic", "validation", view=TINY)
    benchmark = read_benchmark("visda-2017")
    assert (source.classes, target.classes) == (benchmark.classes, benchmark.shared)
    assert (source.n, target.n) == (12, 6)
    assert source.y is not None
    assert source.y.tolist() == list(range(12))
    assert target.names == tuple(f"{name}/0.png" for name in benchmark.shared)
    np.testing.assert_array_equal(target.x[[3]], np.full((1, 3, 4, 4), 3))  # the image of the fourth class


def test_a_task_of_domainnet_leaves_other_classes_out(tmp_path: Path) -> None:
    benchmark = read_benchmark("domainnet")
    make_tree(tmp_path / "clipart", [*benchmark.classes, "airplane"])
    make_tree(tmp_path / "real", [*benchmark.shared, "airplane", "zebra"])
    source, target = benchmark_task("domainnet", tmp_path, "clipart", "real", view=TINY)
    assert (source.classes, source.n) == (benchmark.classes, 126)
    assert (target.classes, target.n) == (benchmark.shared, 40)
    assert source.y is not None
    assert [source.classes[k] for k in source.y] == [name.split("/")[0] for name in source.names]


def test_imagenet_and_caltech_are_matched_by_identifier(tmp_path: Path) -> None:
    benchmark = read_benchmark("imagenet-caltech")
    caltech = benchmark.domain("caltech")
    make_tree(tmp_path / "ImageNet" / "train", [*benchmark.shared, "n00000001"])
    make_tree(tmp_path / "256_ObjectCategories", [*caltech.names, "257.clutter"])
    source, target = benchmark_task("imagenet-caltech", tmp_path, "imagenet", "caltech", view=TINY)
    assert source.classes == ("n00000001", *benchmark.shared)
    assert target.classes == benchmark.shared
    assert target.n == 84
    assert target.y is not None
    assert {name.split("/")[0]: target.classes[k] for name, k in zip(target.names, target.y, strict=True)} == dict(
        caltech.names
    )
    assert kinds(benchmark, tmp_path, "warn") == []
    found = {(finding.domain, finding.kind): finding.text for finding in benchmark.check(tmp_path)}
    assert "85 class folders" in found["imagenet", "classes"]
    with pytest.raises(InputError, match="it is a target"):
        benchmark_task("imagenet-caltech", tmp_path, "caltech", "imagenet")


def test_a_task_is_refused_with_what_is_missing(visda: Path) -> None:
    with pytest.raises(InputError, match="two domains"):
        benchmark_task("visda-2017", visda, "train", "synthetic")
    with pytest.raises(InputError, match="allowed: train, validation"):
        benchmark_task("visda-2017", visda, "train", "webcam")
    with pytest.raises(InputError, match=r"no folder of 'amazon'.*warmpot doctor --dataset office-31"):
        benchmark_task("office-31", visda, "amazon", "webcam")
    (visda / "validation" / "bus" / "0.png").unlink()
    with pytest.raises(InputError, match="no images of 1 of the 6 classes: 'bus'"):
        benchmark_task("visda-2017", visda, "train", "validation")
    shutil.rmtree(visda / "train")
    (visda / "train").mkdir()
    Image.new("L", (2, 2)).save(visda / "train" / "loose.png")
    with pytest.raises(InputError, match="images only"):
        benchmark_task("visda-2017", visda, "train", "validation")


def test_doctor_reports_what_is_missing(visda: Path) -> None:
    result = run("--dataset", "visda-2017", "--root", visda)
    assert result.exit_code == 0, result.output
    assert "2 ok, 0 to look at, 0 to fix" in result.stdout
    assert "Python" not in result.stdout, "the data set only"
    (visda / "train" / "bus").rename(visda / "train" / "tram")
    result = run("--dataset", "visda-2017", "--root", visda)
    assert result.exit_code == 1
    assert re.search(r"^fail  train +1 of 12 class folders missing in .*: bus", result.stdout, flags=re.MULTILINE)
    assert re.search(r"^warn  train +1 unexpected folders: tram", result.stdout, flags=re.MULTILINE)
    result = run("--dataset", "visda-2017", "--root", visda / "nowhere")
    assert result.exit_code == 1
    assert re.search(r"^fail  root ", result.stdout, flags=re.MULTILINE)


def test_doctor_describes_a_data_set() -> None:
    result = run("--dataset", "office-home")
    assert result.exit_code == 0, result.output
    assert "65 classes in the source, 25 of them in the target" in result.stdout
    assert "Real World/  (or Rw/, real/)  65 class folders, 4,357 images" in result.stdout
    assert "https://www.hemanthdv.org" in result.stdout
    assert "010.beer-mug = n02823750" in run("--dataset", "imagenet-caltech").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dataset", "ofice-31"), "Did you mean 'office-31'"),
        (("--root", "."), "Name the data set"),
        ((__file__, __file__, "--dataset", "office-31"), "one of the two"),
    ],
)
def test_doctor_refuses_contradictory_arguments(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no images in {REAL}")
def test_real_office_31_lacks_dslr() -> None:
    result = run("--dataset", "office-31", "--root", REAL)
    assert result.exit_code == 1
    levels = {line.split()[1]: line for line in result.stdout.splitlines() if line.startswith(("ok", "fail", "warn"))}
    assert levels["dslr"].startswith("fail  dslr              missing")
    assert "complete" in levels["amazon"]
    assert "complete" in levels["webcam"]
    source, target = benchmark_task("office-31", REAL, "amazon", "webcam")
    task, truth = make_task(source, target)
    assert (task.n_classes, len(source.names), len(target.names)) == (31, 2817, 295)
    assert truth is not None
    assert len(set(truth.yt.tolist())) == 10
