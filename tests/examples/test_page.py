"""The examples' page: parses, fetches nothing, escapes all text, and its figures have words."""

import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from aspect.examples.page import COLOURS, ExampleTable, PageSection, line_figure, render_page
from examples.pages import demo_page, theory_page

VOID = {"meta", "br", "img", "hr"}
HOSTILE = '</style></title><img src=x onerror="alert(1)">\'"=cmd()$_\x1b[31m'


class ParsedPage(HTMLParser):
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

    @property
    def counts(self):
        return Counter(tag for tag, _ in self.tags)


@pytest.mark.parametrize(("page", "figures"), [(demo_page, 9), (theory_page, 2 + 2 + 4 + 3)])
def test_a_page_is_whole_and_fetches_nothing(page, figures):
    text, parsed = page(), ParsedPage(page())
    assert (parsed.counts["table"], parsed.counts["script"]) == (2, 0)
    assert parsed.counts["svg"] == parsed.counts["figure"] == figures
    assert "aspect demo --seeds 2" in parsed.text
    assert not re.search(r"https?:|//[a-z]|@import|src=", text)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    ids = Counter(attributes["id"] for _, attributes in parsed.tags if "id" in attributes)
    assert {name for name, count in ids.items() if count > 1} == set()
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', text)) <= set(ids)
    for tag, attributes in parsed.tags:
        if tag == "svg":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"]) > 20


def test_figures_keep_their_letters_and_take_the_page_s_colours():
    figure = line_figure("A <title>", "Words.", [0, 1], {"<y>": [[1, 2]]}, ("x axis", "y axis"))
    assert "x axis" in figure.svg
    assert "&lt;y&gt;" in figure.inline
    assert 'aria-label="A &lt;title&gt;. Words."' in figure.inline
    assert "var(--blue)" in figure.inline
    assert not any(colour in figure.inline for colour in COLOURS.values())
    again = line_figure("A <title>", "Words.", [0, 1], {"<y>": [[1, 2]]}, ("x axis", "y axis"))
    assert again == figure


def test_hostile_text_stays_text():
    table = ExampleTable("t", HOSTILE, (HOSTILE, "b"), ((HOSTILE, HOSTILE),))
    section = PageSection(HOSTILE, HOSTILE, [HOSTILE], (), [table])
    parsed = ParsedPage(render_page(HOSTILE, HOSTILE, [section], {HOSTILE: HOSTILE}))
    assert parsed.counts["img"] == 0
    assert parsed.counts["title"] == parsed.counts["style"] == 1
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert " ".join(HOSTILE.split()) in parsed.text


def test_markdown_has_a_line_per_row():
    table = ExampleTable("t", "c", ("a", "b"), (("x|y", "1"), ("z", "2")))
    assert table.to_markdown() == "| a | b |\n| --- | --- |\n| x\\|y | 1 |\n| z | 2 |\n"
