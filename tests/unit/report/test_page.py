"""Pages and figures: contrast, escaping, themes, tips, files."""

from __future__ import annotations

import io
import itertools
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from warmpot._tables import ABSENT, ResultTable, TableCell, TableColumn, column_groups
from warmpot.errors import InputError
from warmpot.report.page import (
    Code,
    Details,
    Facts,
    Notice,
    Picture,
    Section,
    Text,
    Thumb,
    Thumbnails,
    Tiles,
    make_table,
    write_page,
)
from warmpot.report.style import COLOURS, PAPER, THEME, WIDTH, heat, label, legend, new_figure, series, ticks, visible
from warmpot.report.svg import PNG_DPI, draw_svg, inline_svg, save_figure

HOSTILE = [
    "<script>alert(1)</script>",
    "$x",
    '"><img src=x onerror=alert(1)>',
    "a\nb",
    "{{ 7*7 }}",
    "\x00\x1b\udc80\ufffe",
]
SCRIPTS = Path(__file__).parents[3] / "src/warmpot/report/templates/page.js"


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one: str, other: str) -> float:
    """Return the ratio of WCAG 2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def mixed(over: str, under: str, share: float) -> str:
    parts = [(int(over[at : at + 2], 16), int(under[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)


TEXTS = [
    *itertools.product(("ink", "muted", "accent"), ("page", "paper")),
    *(
        (f"{level}-ink", ground)
        for level in ("good", "info", "warning", "bad")
        for ground in ("page", "paper", f"{level}-tint")
    ),
    *(("ink", f"{level}-tint") for level in ("good", "info", "warning", "bad")),
    ("page", "ink"),  # a tip
    ("ink", "heat"),
    ("ink", "cold"),
]
SHAPES = [*itertools.product((*COLOURS, "edge", "accent"), ("page", "paper"))]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("front", "back", "least"), [(*pair, 4.5) for pair in TEXTS] + [(*pair, 3.0) for pair in SHAPES]
)  # fmt: skip
def test_everything_can_be_read(theme: int, front: str, back: str, least: float) -> None:
    assert contrast(THEME[front][theme], THEME[back][theme]) >= least


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("tint", ["heat", "cold"])
def test_ink_is_readable_on_every_tint(theme: int, tint: str) -> None:
    for share in np.linspace(0, 1, 21):
        ground = mixed(THEME[tint][theme], THEME["paper"][theme], float(share))
        assert contrast(THEME["ink"][theme], ground) >= 4.5


def test_colours_that_stand_for_names_are_different() -> None:
    lights = [light for light, _ in THEME.values()]
    assert len(set(lights)) == len(lights)
    assert {series(k) for k in range(8)} == set(COLOURS.values()) - {COLOURS["grey"]}
    assert series(8) == series(0)


class Reader(HTMLParser):
    """Elements and texts as a browser has them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.code = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.code = False

    def handle_data(self, data: str) -> None:
        self.text += [] if self.code else [data]


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_bytes().decode("utf-8"))
    return reader


def bars(names: list[str]) -> Picture:
    figure = new_figure()
    axes = figure.add_subplot()
    for bar in axes.bar(range(len(names)), range(1, len(names) + 1)):
        bar.set_gid("tip-bars")
    ticks(axes.xaxis, names, start=0.0)
    axes.set_title(names[0])
    axes.set_ylabel(names[-1])
    legend(figure, axes.patches, names)
    return Picture("bars", figure, alt=names[0], caption=names[1], tips={"bars": names})


def jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "JPEG")
    return stream.getvalue()


def everything(names: list[str]) -> list[Section]:
    first, *_ = names
    return [
        Section(
            first,
            [
                Text(first),
                Notice("warning", first, first),
                Tiles([(first, first, first)]),
                Facts([(first, first, first)]),
                make_table(names, [[TableCell(name, title=name, tone="good") for name in names], names], first, first),
                bars(names),
                Thumbnails([Thumb(jpeg(), first, first)], first),
                Code("\n".join(names)),
                Details(first, [Code(first)]),
            ],
            lead=first,
        ),
        Section("second"),
    ]


def test_what_users_named_is_text(tmp_path: Path) -> None:
    plain, bad = tmp_path / "plain.html", tmp_path / "bad.html"
    count = len(HOSTILE)
    write_page(plain, title="t", subtitle="s", sections=everything([f"name{k}" for k in range(count)]))
    write_page(bad, title=HOSTILE[0], subtitle=HOSTILE[2], sections=everything(HOSTILE))
    # whatever the names, the page has the same elements; only the words of attributes and texts differ
    tags = [[tag for tag, _ in read(path).tags if tag not in ("text", "tspan")] for path in (plain, bad)]
    shapes = [[tag for tag in found if tag not in ("circle", "path", "use", "g", "defs")] for found in tags]
    assert shapes[0] == shapes[1]
    reader = read(bad)
    said = "".join(reader.text)
    for name in HOSTILE[:-1]:
        assert name in said
    assert "49" not in said
    assert "\x00" not in said
    assert not [key for _, given_ in reader.tags for key in given_ if key.startswith("on")]


def test_commands_in_a_text_are_code_and_nothing_else_is(tmp_path: Path) -> None:
    text = "Of `<b>` and `a`: run `warmpot fit --set 'a<b'`."
    write_page(
        tmp_path / "page.html", title="t", sections=[Section("s", [Text(text), Notice("info", text, text)], text)]
    )
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<code>warmpot fit --set &#39;a&lt;b&#39;</code>") == 4
    assert page.count("Of `&lt;b&gt;` and `a`: run") == 4


def test_the_page_asks_for_nothing(tmp_path: Path) -> None:
    page = tmp_path / "a" / "page.html"
    size = write_page(page, title="t", sections=everything(list("abcdef")))
    assert size == page.stat().st_size
    reader = read(page)
    policy = next(found["content"] for tag, found in reader.tags if found.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    sources = [found[key] for _, found in reader.tags for key in ("src", "href", "srcset") if found.get(key)]
    assert all(source.startswith(("#", "data:")) for source in sources if source)
    assert not re.search(r"url\((?!#)|@import", page.read_text(encoding="utf-8"))
    assert SCRIPTS.stat().st_size < 10_000


def test_the_only_script_is_the_one_that_the_policy_names(tmp_path: Path) -> None:
    import base64
    import hashlib

    write_page(tmp_path / "p.html", title="t", sections=[])
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    [script] = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in text


def test_a_page_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_page(tmp_path / name, title="t", sections=everything(list("abcdef")))
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_page_that_cannot_be_made_leaves_the_old_one(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, title="old", sections=[])
    before = page.read_bytes()
    with pytest.raises(InputError, match="JPEG or PNG"):
        write_page(page, title="new", sections=[Section("s", [Thumbnails([Thumb(b"<svg>", "")])])])
    assert page.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_figures_become_files_in_the_light_colours(tmp_path: Path) -> None:
    write_page(
        tmp_path / "page.html", title="t", sections=[Section("s", [bars(HOSTILE)])], figures=tmp_path / "figures"
    )
    with Image.open(tmp_path / "figures" / "bars.png") as image:
        assert image.getpixel((0, 0))[:3] == tuple(int(PAPER[at : at + 2], 16) for at in (1, 3, 5))
        assert np.asarray(image.convert("L")).std() > 10
    svg = (tmp_path / "figures" / "bars.svg").read_text(encoding="utf-8")
    assert COLOURS["blue"] in svg
    assert "var(--" not in svg
    assert "&lt;script&gt;" in svg


def test_names_of_figures_are_each_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="each once"):
        write_page(tmp_path / "p.html", title="t", sections=[Section("s", [bars(list("ab")), bars(list("ab"))])])
    with pytest.raises(InputError, match="lower-case letters"):
        Picture("../x", new_figure(), "alt")


def test_a_figure_follows_the_theme() -> None:
    figure = new_figure()
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=COLOURS["red"], label="x")
    axes.text(0, 0, "plain")
    axes.legend()
    svg, width = inline_svg(draw_svg(figure), "a", "what one sees")
    assert width == pytest.approx(WIDTH * 72)
    assert "var(--red)" in svg
    assert "var(--muted)" in svg
    assert not re.search(r"#[0-9a-f]{6}\b(?!\))", re.sub(r'(href|id|clip-path)="[^"]*"', "", svg))
    root = ElementTree.fromstring(svg)
    assert root.attrib == {"viewBox": "0 0 316.8 216", "role": "img", "aria-label": "what one sees"}
    assert "plain" in [text.text for text in root.iter("text")]
    assert all(element.get("id", "a-").startswith("a-") for element in root.iter())


def tips_of(svg: str) -> list[str]:
    return [found for element in ElementTree.fromstring(svg).iter() if (found := element.get("data-tip"))]


@pytest.mark.parametrize("how", ["bar", "plot", "same", "sizes", "mesh", "lines"])
def test_every_element_gets_its_tip(how: str) -> None:
    figure = new_figure()
    axes = figure.add_subplot()
    x = np.arange(4.0)
    found: Any = {
        "bar": lambda: axes.bar(x, x + 1),
        "plot": lambda: axes.plot(x, x, marker="o"),
        "same": lambda: [axes.scatter(x, x, s=20)],
        "sizes": lambda: [axes.scatter(x, x, s=10 * x + 5, c=[COLOURS["red"], COLOURS["blue"]] * 2, alpha=0.5)],
        "mesh": lambda: [heat(axes, x.reshape(2, 2))],
        "lines": lambda: [axes.hlines(x, 0, 1)],
    }[how]()
    for artist in found:
        artist.set_gid("tip-it")
    texts = ["a", "b & c", "<d>", 'e"\nf']
    assert tips_of(inline_svg(draw_svg(figure), "n", "alt", {"it": texts})[0]) == texts
    with pytest.raises(InputError, match="one for each element"):
        inline_svg(draw_svg(figure), "n", "alt", {"it": texts[:3]})


def test_a_group_can_have_one_tip_and_must_be_there() -> None:
    figure = new_figure()
    figure.add_subplot().plot([0, 1], [0, 1])[0].set_gid("tip-line")
    assert tips_of(inline_svg(draw_svg(figure), "n", "alt", {"line": "all of it"})[0]) == ["all of it"]
    with pytest.raises(InputError, match="gid 'tip-other'"):
        inline_svg(draw_svg(figure), "n", "alt", {"other": ["x"]})


def test_circles_stay_where_they_are() -> None:
    figure = new_figure()
    axes = figure.add_subplot()
    axes.scatter([0.2, 0.8], [0.5, 0.5], s=[16, 64], linewidth=0)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    circles = list(ElementTree.fromstring(inline_svg(draw_svg(figure), "n", "alt")[0]).iter("circle"))
    assert [float(circle.get("r", 0)) for circle in circles] == pytest.approx([2, 4], abs=0.01)  # s = (2 r)^2
    places = [axes.transData.transform((x, 0.5)) * 72 / figure.dpi for x in (0.2, 0.8)]
    for circle, (x, y) in zip(circles, places, strict=True):
        assert float(circle.get("cx", 0)) == pytest.approx(x, abs=0.02)
        assert float(circle.get("cy", 0)) == pytest.approx(216 - y, abs=0.02)


def test_axes_of_powers_have_plain_numbers() -> None:
    figure = new_figure()
    axes = figure.add_subplot()
    axes.plot([1, 1000], [1, 2])
    axes.set_xscale("log")
    texts = [text.text for text in ElementTree.fromstring(inline_svg(draw_svg(figure), "n", "alt")[0]).iter("text")]
    assert {"1", "10", "100", "1000"} <= set(texts)
    assert not any("$" in (text or "") for text in texts)


def test_a_matrix_without_numbers_is_blank() -> None:
    figure = new_figure()
    mesh = heat(figure.add_subplot(), [[np.nan, 0.0], [1.0, -1.0]], signed=True)
    tints = np.asarray(mesh.get_array()).reshape(4, 4)
    blank, zero, gain, loss = tints[:, 3]
    assert blank == 0
    assert 0 < zero < gain == loss
    assert not np.allclose(tints[2], tints[3])
    heat(new_figure().add_subplot(), [[math.nan]])


@settings(max_examples=20)
@given(st.text(max_size=12))
def test_any_text_can_stand_in_a_figure(text: str) -> None:
    figure = new_figure(2, 2)
    figure.text(0.5, 0.5, text)
    svg, _ = inline_svg(draw_svg(figure), "n", text)
    root = ElementTree.fromstring(svg)
    shown = "".join(found.text or "" for found in root.iter("text"))
    assert "".join(shown.split()) == "".join(visible(text).split())


@given(st.text(max_size=60), st.integers(4, 30))
def test_labels_are_short_and_on_one_line(text: str, most: int) -> None:
    short = label(text, most)
    assert 0 < len(short) <= max(most, len("(empty)"))
    assert "\n" not in short


def test_cells_know_how_they_are_sorted() -> None:
    table = make_table(["a", "b"], [["x", 1.0], ["y", None], [TableCell("z", value=3), math.nan]])
    assert [[cell.sort_key for cell in row] for row in table.cells] == [["x", "1.0"], ["y", ""], ["3.0", ""]]
    assert [column.numeric for column in table.columns] == [False, True]
    assert [cell.text for _, cell in table.cells] == ["1", ABSENT, ABSENT]


def test_heads_can_stand_above_heads() -> None:
    assert column_groups([TableColumn("a"), TableColumn("b", "x"), TableColumn("c", "x")]) == [("", 1), ("x", 2)]
    assert column_groups([TableColumn(name) for name in "abc"]) == []


@pytest.mark.parametrize(
    "make",
    [lambda: make_table(["a"], [["x", "y"]]), lambda: Notice("loud", "x"), lambda: TableCell("x", tone="purple")],
)  # fmt: skip
def test_a_wrong_block_is_refused(make: Any) -> None:
    with pytest.raises(InputError, match="allowed"):
        make()


def test_a_figure_saved_alone(tmp_path: Path) -> None:
    figure = new_figure()
    figure.add_subplot().plot([0, 1])
    drawn = draw_svg(figure)
    save_figure(figure, drawn, tmp_path, "one")
    assert {path.name for path in tmp_path.iterdir()} == {"one.png", "one.svg"}
    assert THEME["paper"][0] in (tmp_path / "one.svg").read_text("utf-8")  # readable on a dark page too
    assert "var(--paper)" not in inline_svg(drawn, "one", "alt")[0]  # the page has its own
    with Image.open(tmp_path / "one.png") as image:
        assert image.size == (round(WIDTH * PNG_DPI), 3 * PNG_DPI)
        assert "#{:02x}{:02x}{:02x}".format(*image.getpixel((0, 0))) == THEME["paper"][0]


def test_a_result_table_is_a_block(tmp_path: Path) -> None:
    columns = [TableColumn("row", numeric=False), TableColumn("A", "Office"), TableColumn("B", "Office")]
    rows = [["<full>", TableCell("81.2 (0.3)", bold=True, value=81.2), "-"], ["pada", 80.0, None]]
    write_page(
        tmp_path / "page.html",
        title="t",
        sections=[Section("s", [ResultTable(columns, rows, "Accuracy", notes=["One <note>.", "Two."])])],
    )
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<p class="caption">Accuracy</p>' in text
    assert '<p class="note">One &lt;note&gt;. Two.</p>' in text
    assert '<th scope="colgroup" colspan="2" class="group">Office</th>' in text
    assert '<td class="right bold short" data-sort="81.2">81.2 (0.3)</td>' in text
    assert '<td class="right short" data-sort="">-</td>' in text
    assert f'<td class="right tone-muted short" data-sort="">{ABSENT}</td>' in text
