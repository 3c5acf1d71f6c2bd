"""The page: parses, fetches nothing, escapes every name, and is the same for the same record."""

from html.parser import HTMLParser

import pytest

from aspect.report.canvas import Picture
from aspect.report.figures import Area, Axis, Drawing, areas
from aspect.report.html import grids, inline_svg

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
