"""Panels in every format: any name, the same bytes, nothing that tells when or where."""

import io
import re
import zlib
from xml.dom import minidom

import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image

from aspect.report.canvas import SERIES, Picture, shown
from aspect.report.figures import (
    PALETTE,
    Area,
    Axis,
    Bundle,
    Cloud,
    areas,
    bundles,
    clouds,
    ladder,
)
from aspect.report.panels import Hill, Trend, hills, marked_dots, shaded_dots, trends

LABEL = "$x_1$ & <y>"
X, Y = Axis("x"), Axis("y")


def panels(label=LABEL):
    """One of each kind."""
    return {
        "areas": areas([0, 1, 2], [Area(label, "blue", [1, 2], 0.5)], X, Y),
        "bundles": bundles([0, 1], [Bundle(label, "blue", [[1, 2], [2, 3]])], X, Y),
        "clouds": clouds([Cloud(label, "blue", [0, 1], [1, 0])], X, Y),
        "ladder": ladder([label], [Cloud(label, "blue", [1.0], ())], X),
        "hills": hills([0, 0.5, 1], [Hill(label, "blue", [0, 1, 0], 0.5)], X, Y),
        "bars": trends([Trend(label, "blue", [0, 1], [1, 2], [0.1, 0.2])], X, Y),
        "bands": trends([Trend(label, "blue", [0, 1], [1, 2], [0, 1])], X, Y, spread="bands"),
        "marked": marked_dots([0, 1], [1, 0], [(label, "blue")], [0, 0]),
        "shaded": shaded_dots([0, 1], [1, 0], [0.2, 0.9], "gate"),
    }


def test_every_format_is_what_it_says():
    picture = panels()["bars"]
    assert picture.render("pdf").startswith(b"%PDF-")
    assert minidom.parseString(picture.svg).documentElement.tagName == "svg"  # noqa: S318 - ours
    image = Image.open(io.BytesIO(picture.render("png")))
    assert image.size == pytest.approx((300 * picture.width, 300 * picture.height), abs=1)
    assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)


@pytest.mark.parametrize(
    ("panel", "kind"),
    [*((name, "svg") for name in panels()), ("bars", "pdf"), ("bars", "png"), ("marked", "pdf")],
)
def test_the_same_numbers_give_the_same_bytes(panel, kind):
    first, second = (panels()[panel].render(kind) for _ in range(2))
    assert first == second
    assert b"Date" not in first
    assert b"Matplotlib" not in first
    assert b"matplotlib.org" not in first


def test_a_pdf_brings_its_fonts_as_they_are():
    content = panels()["bars"].render("pdf")
    streams = re.findall(rb"stream\r?\n(.*?)endstream", content, flags=re.DOTALL)
    plain = content + b"".join(_inflated(stream) for stream in streams)
    assert b"/FontFile2" in plain
    assert b"/Type3" not in plain


def _inflated(stream):
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


@pytest.mark.parametrize("panel", [name for name in panels() if name != "shaded"])
def test_names_are_taken_as_they_are(panel):
    assert "$x_1$ &amp; &lt;y&gt;" in panels()[panel].svg


NAMES = ["long " * 2000, "节点", "tab\tand\x07bell", "a\nb", "", "_hidden"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_name_can_be_drawn(name):
    for panel, picture in panels(name).items():
        if panel == "shaded":  # it bears no name
            continue
        drawn = picture.svg
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", drawn), panel
        assert shown(name).strip() in drawn, panel
        assert len(drawn) < 60_000, panel


def test_a_long_name_is_cut_and_a_short_one_kept():
    assert shown("long " * 40) == "long long long long l..."
    assert shown("as it is") == "as it is"
    assert shown("one\nline") == "one line"


def test_lines_differ_in_more_than_colour():
    groups = [Trend(f"line {k}", colour, [0, 1], [k, k]) for k, colour in enumerate(SERIES)]
    drawn = trends(groups, X, Y).svg
    assert len(set(SERIES)) == 8
    assert all(PALETTE[colour] in drawn for colour in SERIES)
    assert len(set(re.findall(r'<use xlink:href="#(m[^"]+)"', drawn))) >= 8  # markers


def test_legends_of_many_lines_leave_the_panel_its_room():
    def tall(count):
        groups = [Trend(f"a rather long name {k}", "blue", [0, 1], [k, k]) for k in range(count)]
        return trends(groups, X, Y).height

    assert tall(1) == tall(2)
    assert tall(8) > tall(4) > tall(2)


def test_ticks_are_words():
    drawn = trends([Trend("t", "blue", [1, 2], [0, 1])], X, Y, ticks=["Q1", "Q2"]).svg
    assert ">Q1<" in drawn
    assert ">Q2<" in drawn


@pytest.mark.filterwarnings("error")
def test_empty_spreads_and_flat_lines_are_drawn():
    flat = [Trend("flat", "blue", [0, 1], [1, 1], [0, 0]), Trend("bare", "orange", [0], [1])]
    for spread in ("bars", "bands"):
        assert trends(flat, X, Y, spread=spread).svg


def test_a_map_of_many_dots_stays_small():
    count = 20_000
    generator = np.random.default_rng(0)
    x, y = generator.random((2, count)).tolist()
    kinds = (np.arange(count) % 8).tolist()
    names = [(f"class {k}", colour) for k, colour in enumerate(SERIES)]
    for picture in (marked_dots(x, y, names, kinds), shaded_dots(x, y, x, "gate")):
        assert len(picture.svg) < 220_000
        assert "<image" in picture.svg


def test_a_map_is_as_high_as_it_is_wide():
    places = []

    def measured(picture):
        def paint(axes):
            picture.paint(axes)
            places.append(axes)

        Picture(paint, picture.width, picture.height).render("svg")
        box = places[-1].get_window_extent()
        return box.width, box.height

    for picture in (marked_dots([0, 1], [0, 1], [("a", "blue")], [0, 0]), panels()["shaded"]):
        width, height = measured(picture)
        assert width == pytest.approx(height, rel=1e-3)
    assert all(isinstance(axes, Axes) for axes in places)


def test_nothing_is_drawn_before_it_is_asked_for():
    asked = []
    picture = Picture(asked.append)
    assert asked == []
    assert picture.svg is picture.svg
    assert len(asked) == 1
