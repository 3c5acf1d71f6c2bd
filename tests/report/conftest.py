"""What the tests of the report share."""

import pytest

from report.records import make_record


@pytest.fixture
def record():
    """Numbers made by hand: see `records`."""
    return make_record()
