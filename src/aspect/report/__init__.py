"""Stage 8: pages that show what was found. Numbers first (tables), then drawing, then the page."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.report.results import Results, collect
    from aspect.report.tables import Table

__all__ = ["Results", "Table", "collect"]

__getattr__, __dir__ = exporting(__name__, __file__)
