"""The pages in a real browser: nothing from any network, no error, and everything works by hand and by keyboard."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from warmpot._tables import ABSENT

PAGES = ["bench_page", "run_page"]
Opener = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Opener]:
    """Return a function that opens a page; at the end there was no error, no dialog, no request but the page's own."""
    contexts: list[Any] = []
    heard: list[str] = []
    asked: list[str] = []

    def open_page(path: Path, width: int = 1280, **settings: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, **settings)
        contexts.append(context)
        context.set_default_timeout(0)  # none: it would depend on the speed of the machine
        page = context.new_page()
        page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == len(contexts)


@pytest.fixture(params=PAGES)
def path(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def pixels(page: Any, **settings: Any) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(page.screenshot(**settings))).convert("L"), dtype=float)


def test_light_and_dark_are_drawn(opened: Opener, path: Path) -> None:
    light, dark = (pixels(opened(path, color_scheme=scheme)) for scheme in ("light", "dark"))
    assert light.std() > 10  # not blank
    assert dark.std() > 10
    assert np.median(light) > 200
    assert np.median(dark) < 60


def test_it_loads_small_and_without_scripts_too(opened: Opener, path: Path) -> None:
    assert path.stat().st_size < 3_000_000
    page = opened(path, java_script_enabled=False)
    assert page.locator("main h2").count() >= 4
    assert page.locator("main svg").count() >= 4
    assert page.locator(".theme").is_hidden()


def test_names_are_texts(opened: Opener, path: Path, hostile: tuple[str, ...]) -> None:
    page = opened(path)
    assert page.locator("main script, main img[src='x']").count() == 0
    shown = page.evaluate("document.querySelector('main').textContent")
    for name in hostile:
        first = name.partition("\n")[0]
        assert first in shown
    assert "_49" not in shown  # no template ran
    drawn = page.evaluate("[...document.querySelectorAll('svg text')].map(text => text.textContent).join(' ')")
    assert "$x_1$ ${" in drawn


def test_it_fits_a_phone(opened: Opener, path: Path) -> None:
    page = opened(path, width=360)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    wide = page.evaluate(
        """[...document.querySelectorAll('main *')].filter(one => !one.closest('.scroll, .canvas')
        && one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"""
    )
    assert wide == []


def test_a_phone_shows_whole_histograms_and_low_heads(opened: Opener, run_page: Path) -> None:
    page = opened(run_page, width=390)
    hidden = page.evaluate(
        """[...document.querySelectorAll('[id^=figure-weights-] .canvas')]
        .map(one => one.scrollWidth - one.clientWidth)"""
    )
    assert len(hidden) == 2  # stacked, by class
    assert max(hidden) <= 60  # its end may need a push, never a whole panel
    tall = page.evaluate("Math.max(...[...document.querySelectorAll('thead')].map(one => one.offsetHeight))")
    assert tall < 50  # one line


def test_pointing_shows_a_tip(opened: Opener, path: Path) -> None:
    page = opened(path)
    mark = page.locator("svg [data-tip]").first
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator("#tip")
    tip.wait_for(state="visible")
    on = page.locator("svg .on")  # of marks on top of each other, the upper one
    assert tip.text_content() == on.get_attribute("data-tip") != ""
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_arrow_keys_walk_through_a_figure(opened: Opener, path: Path) -> None:
    page = opened(path)
    canvas = page.locator(".canvas[data-tips]").first
    canvas.focus()
    texts = canvas.locator("[data-tip]").evaluate_all("all => all.map(one => one.dataset.tip)")
    said = []
    for _ in range(2):
        page.keyboard.press("ArrowRight")
        said.append(page.locator("#tip").text_content())
    assert said == texts[:2]
    page.keyboard.press("ArrowLeft")
    assert page.locator("#tip").text_content() == texts[0]
    page.keyboard.press("Tab")
    assert page.locator("#tip").is_hidden()


def test_tables_are_sorted_by_click_and_by_key(opened: Opener, bench_page: Path) -> None:
    page = opened(bench_page)
    table = page.locator("table").first
    heads = table.locator("thead tr").last.locator("th")
    column = heads.all_text_contents().index("last")

    def values() -> list[float]:
        cells = table.locator(f"tbody tr > :nth-child({column + 1})")
        return [float(text.split()[0].strip("*")) for text in cells.all_text_contents() if text != ABSENT]

    assert len(values()) > 3
    heads.nth(column).locator("button").click()
    assert heads.nth(column).get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)
    page.keyboard.press("Enter")
    assert heads.nth(column).get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    heads.first.locator("button").focus()
    page.keyboard.press("Space")
    assert heads.first.get_attribute("aria-sort") == "ascending"
    assert heads.nth(column).get_attribute("aria-sort") == "none"


def test_the_theme_can_be_chosen_and_is_kept(opened: Opener, bench_page: Path) -> None:
    page = opened(bench_page, color_scheme="dark")
    button = page.locator(".theme")

    def shade() -> float:
        return float(np.median(pixels(page)))

    seen = [(button.text_content(), shade())]
    for _ in range(3):
        button.click()
        seen.append((button.text_content(), shade()))
    assert [name for name, _ in seen] == ["Theme: auto", "Theme: light", "Theme: dark", "Theme: auto"]
    assert [value > 128 for _, value in seen] == [False, True, False, False]
    button.click()
    assert page.evaluate("localStorage.getItem('warmpot-theme')") == "light"


def test_paper_is_white_and_nothing_is_folded(opened: Opener, path: Path) -> None:
    page = opened(path, color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert np.median(pixels(page)) > 240
    assert page.locator("details:not([open])").count() == 0
    assert page.locator(".toc").count() == 0 or page.locator(".toc").is_hidden()
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert max(int(part) for part in ink[4:-1].split(",")) < 80
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_it_can_be_read_by_those_who_do_not_see_it(opened: Opener, path: Path) -> None:
    page = opened(path)
    assert page.locator("html").get_attribute("lang") == "en"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('svg, img')].filter(one => !(one.getAttribute('aria-label') || one.alt)).length"
    )
    assert unnamed == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids))
    dead = page.evaluate(
        """[...document.querySelectorAll('svg *')].flatMap(one => [...one.attributes])
        .map(one => one.value.match(/^(?:url\\()?#([^)]+)/))
        .filter(found => found && !document.getElementById(found[1])).length"""
    )
    assert dead == 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


def test_text_in_figures_can_be_read_on_a_phone(opened: Opener, path: Path) -> None:
    page = opened(path, width=390)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    small = page.evaluate(
        """[...document.querySelectorAll('main svg text')].map(text => {
            const svg = text.ownerSVGElement, scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            return [parseFloat(getComputedStyle(text).fontSize) * scale, text.textContent];
        }).filter(([size]) => size < 12)"""
    )
    assert small == []
    words = page.evaluate(
        """[...document.querySelectorAll('main *')].filter(one => !one.closest('svg') && one.childNodes.length === 1
        && one.firstChild.nodeType === 3).map(one => parseFloat(getComputedStyle(one).fontSize))"""
    )
    assert min(words) >= 12


def test_wide_tables_scroll_under_their_first_column(opened: Opener, bench_page: Path) -> None:
    page = opened(bench_page, width=390)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    moved = page.evaluate(
        """[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth + 40).map(one => {
            const name = one.querySelector('tbody th'), before = name.getBoundingClientRect().left;
            one.scrollLeft = one.scrollWidth;
            const last = one.querySelector('tbody tr').lastElementChild.getBoundingClientRect();
            const place = one.getBoundingClientRect();
            return [name.getBoundingClientRect().left - before, last.right - place.right,
                    name.getBoundingClientRect().width / place.width];
        })"""
    )
    assert len(moved) > 2
    for shift, rest, share in moved:
        assert abs(shift) <= 1  # the names stay
        assert rest <= 1  # the last column can be reached
        assert share < 0.6  # and the names leave room for it
    assert page.evaluate("[scrollX, document.documentElement.scrollWidth]") == [0, 390]
