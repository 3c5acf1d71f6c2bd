"""Pages of `docs/` whose tables are made of the code, so that they tell of it as it is."""

from __future__ import annotations

from pathlib import Path

from aspect.report.benchmark.readme import fill_blocks
from aspect.report.generated import differing, read_text, write_differing
from aspect.report.methods import describe_methods, methods_table

__all__ = ["differing_pages", "write_pages"]

METHODS = "docs/methods.md"


def _expected_pages(root: Path) -> dict[Path, str]:
    """What every page that is there should hold."""
    path = root / METHODS
    if not path.is_file():
        return {}
    tables = {"methods": methods_table(describe_methods())}
    return {path: fill_blocks(read_text(path), tables, file=METHODS)}


def differing_pages(root: Path) -> list[Path]:
    """The pages that are not what the code says."""
    return differing(_expected_pages(root))


def write_pages(root: Path) -> list[Path]:
    """Make every page what the code says; those that changed."""
    return write_differing(_expected_pages(root))
