"""Peak memory: it follows what is taken until it is forgotten, and is the process's own."""

import subprocess
import sys

import pytest

from aspect.provenance import STATUS

# In a process of its own: this one's peak and garbage are whatever the tests before left behind.
TAKE_AND_GIVE_BACK = """
import torch
from aspect.provenance import forget_peak, peak_bytes
cpu, taken_bytes = torch.device("cpu"), 256 * 2**20
peaks = [peak_bytes(cpu)]
taken = torch.ones(taken_bytes // 4)
peaks.append(peak_bytes(cpu))
del taken
peaks.append(peak_bytes(cpu))
forget_peak(cpu)
peaks.append(peak_bytes(cpu))
print(*(peak // 2**20 for peak in peaks))
"""


def peaks_in_mebibytes():
    command = [sys.executable, "-c", TAKE_AND_GIVE_BACK]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [int(peak) for peak in output.split()]


@pytest.mark.skipif(not STATUS.is_file(), reason="the peak is counted with the parent's here")
def test_the_peak_follows_what_is_taken():
    held_by_the_parent = bytearray(b"1") * (512 * 2**20)
    before, taken, given_back, forgotten = peaks_in_mebibytes()
    assert before * 2**20 < len(held_by_the_parent)
    assert taken - before == pytest.approx(256, abs=64)
    assert given_back == pytest.approx(taken, abs=2)  # the system's counters run a little behind
    assert forgotten == pytest.approx(before, abs=64)
