"""Faults that several tests of this folder provoke."""

import os
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


class Trap:
    """Leaves a folder behind if it is ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def trap(tmp_path):
    """An object whose unpickling would be noticed when the test ends."""
    yield Trap(tmp_path / "sprung")
    assert not (tmp_path / "sprung").exists()
