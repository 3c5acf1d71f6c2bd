"""Where workers compute: cores by default, GPUs in turn."""

from types import SimpleNamespace

import pytest
import torch

from aspect.errors import SettingsError
from aspect.experiment import placement
from aspect.experiment.executor import available_cores
from aspect.experiment.placement import Placement


@pytest.fixture
def three_gpus(monkeypatch):
    """A machine with three large GPUs and many cores, as far as is asked here."""
    large = SimpleNamespace(total_memory=140 * 2**30)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: large)
    monkeypatch.setattr(placement, "available_cores", lambda: 64)
    return large


def test_on_the_cpu_every_core_works():
    assert Placement.choose("cpu", None) == Placement("cpu", available_cores())
    assert Placement.choose("cpu", 3).workers == 3


@pytest.mark.usefixtures("three_gpus")
def test_all_gpus_are_used_in_turn():
    chosen = Placement.choose("cuda", None)
    assert chosen == Placement("cuda", 12, ("0", "1", "2"))
    seen = [each["CUDA_VISIBLE_DEVICES"] for each in chosen.processes().environments]
    assert seen == ["0", "1", "2"] * 4


@pytest.mark.usefixtures("three_gpus")
def test_one_gpu_may_be_named():
    chosen = Placement.choose("cuda:1", 2)
    assert chosen == Placement("cuda", 2, ("1",))


@pytest.mark.usefixtures("three_gpus")
def test_gpus_are_called_as_the_environment_calls_them(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    assert Placement.choose("cuda:2", 1).gpus == ("7",)


def test_a_small_gpu_has_one_worker(three_gpus, monkeypatch):
    monkeypatch.setattr(three_gpus, "total_memory", 8 * 2**30)
    assert Placement.choose("cuda:0", None).workers == 1


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match="not there"):
        Placement.choose("cuda", None)
