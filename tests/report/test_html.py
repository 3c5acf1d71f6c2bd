"""The page: parses, fetches nothing, escapes every name, and is the same for the same record."""

import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from aspect.report.canvas import Picture
from aspect.report.figures import PALETTE, Area, Axis, Drawing, areas
from aspect.report.html import grids, inline_svg
from aspect.report.mixture.page import mixture_page
from report.records import gates, make_record

VOID = {"meta", "link", "br", "img", "hr", "input"}
HOSTILE = '</script></title><img src=x onerror="alert(1)">\'"=cmd()\\begin{x}$_\x1b[31m'


class Page(HTMLParser):
    """Tags with their attributes, the text, and whether every tag is closed in turn."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


@pytest.fixture(scope="module")
def page_text():
    return mixture_page(make_record())


@pytest.fixture(scope="module")
def page(page_text):
    return Page(page_text)


def test_the_page_shows_what_was_found(page):
    assert "96.00 ± 1.41" in page.text
    assert "or 75% of what there is to win" in page.text
    assert "aspect demo --seeds 2" in page.text
    assert "order" in page.text
    kinds = Counter(tag for tag, _ in page.tags)
    assert kinds["table"] == 2
    assert kinds["svg"] == kinds["figure"] == 9


def test_best_and_second_best_can_be_told_without_sight(page):
    assert "96.00 ± 1.41 (best)" in page.text
    assert "93.00 ± 1.41 (second best)" in page.text
    apart = [attributes for tag, attributes in page.tags if tag == "tbody"]
    assert {"class": "apart"} in apart


def test_nothing_comes_from_outside(page_text, page):
    assert not re.search(r"https?:|//[a-z]|@import|src=", page_text)
    for _, attributes in page.tags:
        assert attributes.get("href", "#").startswith("#")
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page_text))


def test_pictures_have_words_and_letters(page):
    for tag, attributes in page.tags:
        if tag == "svg":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"]) > 20
    assert "gate: weight of the low band" in page.text
    labels = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
    assert "Change of the loss terms over 3 epochs: contrast from 0.00 to -1.50." in labels


def test_ids_are_unique_and_references_find_them(page_text, page):
    ids = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
    assert {name for name, count in ids.items() if count > 1} == set()
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', page_text))
    assert used
    assert used <= set(ids)


def test_the_page_knows_its_only_script(page_text):
    assert page_text.count("<script>") == 1
    assert "script-src 'sha256-" in page_text


def test_colours_follow_the_page(page_text):
    pictures = "".join(re.findall(r"<svg.*?</svg>", page_text, flags=re.DOTALL))
    assert "var(--blue)" in pictures
    assert not any(colour in pictures for colour in PALETTE.values())


def test_the_same_record_gives_the_same_bytes(page_text):
    assert mixture_page(make_record(seconds={"all": 99.0})) == page_text


@pytest.mark.filterwarnings("error")
def test_hostile_names_stay_text():
    record = make_record()
    rows = tuple(row.model_copy(update={"title": HOSTILE, "note": HOSTILE}) for row in record.rows)
    graph = record.graph.model_copy(update={"name": HOSTILE})
    hostile = make_record(
        rows=rows,
        graph=graph,
        command=HOSTILE,
        settings={HOSTILE: HOSTILE, "list": [HOSTILE]},
        settings_from=HOSTILE,
        versions={HOSTILE: HOSTILE},
        device=HOSTILE,
    )
    text = mixture_page(hostile)
    page = Page(text)
    kinds = Counter(tag for tag, _ in page.tags)
    assert kinds["img"] == 0
    assert kinds["script"] == kinds["title"] == 1
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert " ".join(HOSTILE.split()) in page.text


def test_hostile_keys_stay_text():
    bad = "<b onload=x>"
    base = make_record()
    graph = base.graph.model_copy(update={"regions": (bad, "other")})

    def renamed(values):
        return dict(zip((bad, "other"), values.values(), strict=True))

    spectrum = base.spectrum.model_copy(update={"classes": renamed(base.spectrum.classes)})
    curves = tuple(c.model_copy(update={"gate": renamed(c.gate)}) for c in base.curves)
    rows = tuple(
        row.model_copy(
            update={"scores": dict(zip(("whole", bad, "other"), row.scores.values(), strict=True))}
        )
        for row in base.rows
    )
    page = Page(mixture_page(make_record(graph=graph, spectrum=spectrum, curves=curves, rows=rows)))
    assert "b" not in {tag for tag, _ in page.tags}
    assert "<b onload=x>: 0.90" in page.text


def test_a_single_seed_and_a_gate_without_spread_are_drawn():
    flat = tuple(gates(0.5, 0.5)[:1])
    page = Page(mixture_page(make_record(gates={"aspect": flat}, seeds=(0,))))
    assert "All nodes of 1 seed." in page.text


def test_a_drawing_s_name_cannot_break_its_ids():
    with pytest.raises(ValueError, match="small letters, digits and dashes"):
        Drawing('x" onload="', "", "", "", Picture(str))


def test_a_picture_on_a_page_has_its_words():
    drawn = areas([0, 1, 2], [Area("<y>", "blue", [1, 2], 0.5)], Axis("x"), Axis("y"))
    inline = inline_svg(Drawing("a", "t", "c", 'alt "quoted"', drawn))
    assert 'aria-label="alt &#34;quoted&#34;"' in inline
    assert "xlink" not in inline.split(">", 1)[0]
    assert "&lt;y&gt;" in inline


def drawings_with(*captions):
    return [
        Drawing(f"d{number}", "t", caption, "a", Picture(str))
        for number, caption in enumerate(captions)
    ]


@pytest.mark.parametrize(
    ("captions", "expected"),
    [
        ("", []),
        ("a", [("", "a")]),
        ("abc", [("", "abc")]),
        ("aaa", [("a", "aaa")]),
        ("aabbc", [("a", "aa"), ("b", "bb"), ("", "c")]),
    ],
)
def test_a_caption_of_several_pictures_is_said_once(captions, expected):
    found = grids(drawings_with(*captions))
    assert [(caption, "".join(each.caption for each in own)) for caption, own in found] == expected
