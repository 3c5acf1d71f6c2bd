"""A page as a reader's browser takes it apart."""

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}


class ParsedPage(HTMLParser):
    """Tags with their attributes, the text, and whether every tag is closed in turn."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []
        self.counts = Counter(tag for tag, _ in self.tags)
        self.ids = Counter(attributes["id"] for _, attributes in self.tags if "id" in attributes)
        self.text = " ".join("".join(self.texts).split())

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def check_names(self):
        """No id comes twice, all links lead to one, and no attribute is a script."""
        assert [name for name, count in self.ids.items() if count > 1] == []
        links = {tag["href"][1:] for _, tag in self.tags if tag.get("href", "").startswith("#")}
        assert links <= set(self.ids)
        assert not any(name.startswith("on") for _, tag in self.tags for name in tag)
