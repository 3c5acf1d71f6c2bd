"""Stage 8: pages that show what was found. Numbers first (tables), then drawing, then the page."""
