"""A paper as it is cited: in a few words, in full, and for BibTeX."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

__all__ = ["Citation"]

MOST_NAMED = 3  # authors in a short citation; of more, the first stands for all


@dataclass(frozen=True)
class Citation:
    """The publication that a method comes from.

    >>> str(Citation("K. Hassani, A. H. Khasahmadi", "Contrastive Multi-View ...", "ICML", 2020))
    'Hassani and Khasahmadi, ICML 2020'
    """

    authors: str  # in order, initials first, separated by commas
    title: str
    venue: str  # a conference or a journal in its usual short form; empty for a preprint
    year: int
    in_journal: bool = False

    @property
    def surnames(self) -> tuple[str, ...]:
        """The authors without their initials."""
        return tuple(re.sub(r"^(\S+\. )+", "", name) for name in self._names)

    @property
    def _names(self) -> list[str]:
        return self.authors.split(", ")

    @property
    def _place(self) -> str:
        return f"{self.venue} {self.year}".strip()

    def __str__(self) -> str:
        """Authors by surname, venue and year."""
        named = self.surnames
        who = f"{named[0]} et al." if len(named) > MOST_NAMED else _listed(named)
        return f"{who}, {self._place}"

    @property
    def reference(self) -> str:
        """In full, as a list of references has it."""
        return f"{_listed(self._names)}: {self.title}. {self._place}."

    @property
    def bibtex(self) -> str:
        """An entry for a bibliography; braces keep the title's capitals."""
        kind, where = "inproceedings", "booktitle"
        if self.in_journal:
            kind, where = "article", "journal"
        elif not self.venue:
            kind, where = "misc", ""
        lines = {
            "author": " and ".join(self._names),
            "title": f"{{{self.title}}}",
            **({where: self.venue} if where else {}),
            "year": str(self.year),
        }
        body = "".join(f"  {name} = {{{text}}},\n" for name, text in lines.items())
        return f"@{kind}{{{self._key},\n{body}}}"

    @property
    def _key(self) -> str:
        """First surname, year and the title's first long word, in plain letters."""
        word = next(iter(re.findall(r"\w{4,}", self.title)), "")
        plain = unicodedata.normalize("NFKD", f"{self.surnames[0]}{self.year}{word}")
        return re.sub(r"[^a-z0-9]", "", plain.lower())


def _listed(names: tuple[str, ...] | list[str]) -> str:
    """Names as in a sentence: `A, B and C`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
