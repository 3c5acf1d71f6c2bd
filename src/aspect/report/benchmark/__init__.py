"""The page and the tables of a benchmark: numbers from records, then pictures, then the page."""
