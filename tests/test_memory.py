"""Peak memory: it grows with what is taken, and does not shrink."""

import pytest
import torch

from aspect.memory import STATUS, peak_bytes

CPU = torch.device("cpu")
COUNTED_LATE = 2**20  # bytes: the system's counters run a little behind


def resident_bytes():
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


@pytest.mark.skipif(not STATUS.is_file(), reason="the system does not tell what is taken now")
def test_the_peak_follows_what_is_taken():
    before, more = peak_bytes(CPU), 64 * 2**20
    taken = torch.ones((before - resident_bytes() + more) // 4)
    after = peak_bytes(CPU)
    assert before + more // 2 < after < before + 2 * more
    del taken
    assert peak_bytes(CPU) >= after - COUNTED_LATE
