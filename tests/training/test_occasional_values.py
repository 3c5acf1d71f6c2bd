"""Values that only some epochs have, such as those of a search: logged, resumed and kept."""

import json

import pytest

from aspect.evaluation.inspection import ValueRecorder
from aspect.experiment.runs import RunOptions, train_run
from aspect.settings import Experiment
from aspect.training.log import TensorBoardLog
from aspect.training.trainer import EpochReport

SEARCHING = {
    "epochs": 12,
    "width": 4,
    "order": 2,
    "gate_width": 4,
    "warm_up": 2,
    "interval": 4,
    "perturbation_steps": 1,
    "draws": 1,
}
DUE = [6, 10]
OCCASIONAL = {
    "stability",
    "search_before",
    "search_after",
    "search_flips",
    "search_moves",
    "sensitivity_low",
    "sensitivity_high",
    "rayleigh_low",
    "rayleigh_low_changed",
    "rayleigh_high",
    "rayleigh_high_changed",
}
EXPERIMENT = Experiment(method="aspect-s", settings=SEARCHING)
RESULTS = ("model.safetensors", "embeddings.npy", "metrics.jsonl", "config.yaml")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of ASPECT-S that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    record = train_run(EXPERIMENT, out, RunOptions(device="cpu", tensorboard=True))
    return out, record


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_an_epoch_logs_what_it_has(whole):
    out, _ = whole
    told = lines(out)
    always = set(told[0])
    assert {"epoch", "loss", "contrast", "policy", "gate_mean"} <= always
    for line in told:
        extra = OCCASIONAL if line["epoch"] in DUE else set()
        assert set(line) == always | extra
        assert None not in line.values()


def test_terms_sum_to_the_loss_with_and_without_a_search(whole):
    for line in lines(whole[0]):
        terms = [line.get(name, 0.0) for name in ("contrast", "channels", "policy", "stability")]
        assert line["loss"] == pytest.approx(sum(terms), rel=1e-5)


def test_the_record_keeps_the_last_epoch(whole):
    out, record = whole
    last = lines(out)[-1]
    assert record["loss"] == {name: value for name, value in last.items() if name != "epoch"}
    assert not OCCASIONAL & set(record["loss"])


def points(folder, name):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(name)]


def test_tensorboard_has_their_points_at_their_epochs(whole):
    folder = whole[0] / "tensorboard"
    told = {line["epoch"]: line for line in lines(whole[0])}
    for name in ("stability", "search_after", "sensitivity_low"):
        found = points(folder, name)
        assert found == [(epoch, pytest.approx(told[epoch][name])) for epoch in DUE]
    assert len(points(folder, "loss")) == SEARCHING["epochs"]


def test_tensorboard_takes_them_up_after_a_resume(tmp_path):
    for keep, epochs in ((0, range(1, 7)), (3, range(4, 7))):
        board = TensorBoardLog(tmp_path, keep_epochs=keep)
        for epoch in epochs:
            board.write(epoch, {"loss": 1.0} | ({"search": float(keep)} if epoch % 2 else {}))
        board.close()
    assert points(tmp_path, "search") == [(1, 0.0), (3, 0.0), (5, 3.0)]


class Stop(Exception):  # noqa: N818 - nothing is wrong
    """What ends a training from outside."""


@pytest.mark.parametrize("last", [5, 6, 7, 11])
def test_a_run_that_goes_on_ends_in_the_same_bytes(whole, tmp_path, last):
    """Stopped before, at and after an epoch with a search."""
    out = tmp_path / "run"

    def stop(report):
        if report.epoch == last:
            raise Stop

    options = {"device": "cpu", "checkpoint_every": 2}
    with pytest.raises(Stop):
        train_run(EXPERIMENT, out, RunOptions(**options, on_epoch=stop))
    train_run(EXPERIMENT, out, RunOptions(**options, resume=True))
    for name in RESULTS:
        assert (out / name).read_bytes() == (whole[0] / name).read_bytes(), name


def test_a_recorder_keeps_every_value_at_its_epoch():
    recorder = ValueRecorder()
    told = [{"loss": 3.0}, {"loss": 2.0, "late": 5.0}, {"loss": 1.0}, {"loss": 0.5, "late": 4.0}]
    for epoch, values in enumerate(told, start=1):
        recorder.epoch_done(EpochReport(epoch, len(told), values), lambda: None)
        assert {len(own) for own in recorder.values.values()} == {epoch}
    assert recorder.values == {"loss": [3.0, 2.0, 1.0, 0.5], "late": [None, 5.0, None, 4.0]}
    assert recorder.whole == {"loss": [3.0, 2.0, 1.0, 0.5]}
