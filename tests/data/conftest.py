"""Faults that several tests of this folder provoke."""

import resource
from contextlib import contextmanager

import pytest


@pytest.fixture
def limited_file_size():
    """A context in which writing beyond so many bytes fails, as on a full disk."""

    @contextmanager
    def limited(num_bytes):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited
