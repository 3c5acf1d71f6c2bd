"""The records of `make probes`, and what its tables say of them."""

import pytest

from scripts import load_script

probes = load_script("probes")


@pytest.fixture(scope="module")
def records():
    return probes.read_records(probes.RECORDS)


def test_every_training_has_one_record(records):
    rows = (*probes.CONTROLS, *probes.METHODS, *probes.BATCH_NORM)
    planned = {(job.row, job.graph, job.seed) for job in probes.jobs(rows, probes.GRAPHS, 3)}
    found = [(record["row"], record["graph"], record["seed"]) for record in records]
    assert len(found) == len(set(found))
    assert set(found) <= planned
    assert {job for job in planned if job[0] not in probes.BATCH_NORM} <= set(found)


def test_no_shipped_setting_is_close_to_collapse(records):
    ours = [record for record in records if record["row"] == "aspect"]
    assert len(ours) == 30
    assert max(record["health"]["mean_cosine"] for record in ours) < 0.9


def test_an_end_of_the_path_is_a_rare_choice(records):
    ends = [scores["neutral"]["ends"] for record in records for scores in record["scores"].values()]
    assert sum(ends) / len(ends) < 0.05


def test_pairs_are_compared_on_the_same_splits():
    def record(row, strict):
        scores = {"strict": strict, "ends": 0.0}
        kinds = {kind: {"neutral": scores, "paper": scores} for kind in probes.KINDS}
        return {"row": row, "graph": "cora", "seed": 0, "scores": kinds}

    below = [record("aspect", [70.0, 71.0, 70.5]), record("raw", [80.0, 81.2, 80.4])]
    assert "-10.0 ± " in probes.against_table(below, "raw")
    assert "**below**" in probes.against_table(below, "raw")
    assert "**below**" not in probes.against_table(below[::-1], "spectral")
