"""What one pre-training took, and how healthy its embedding is."""

from aspect.report.benchmark.cost import cost_table, health_table
from report.benchmark_records import make_records, poison


def test_costs_are_means_over_pretrainings_on_clean_graphs():
    records = make_records(["aspect"], ["cora"], [None, poison()], seeds=3)
    (line,) = cost_table(records).lines
    texts = [cell.text for cell in line.cells]
    assert texts == ["cora", "3.00 ± 1.00", "300", "30 ± 0", "12345", "a processor"]


def test_perturbed_graphs_count_where_there_is_nothing_else():
    (line,) = cost_table(make_records(["aspect"], ["cora"], [poison()], seeds=1)).lines
    assert line.cells[1].value == 2.0


def test_what_was_not_measured_is_a_gap_and_failures_cost_nothing():
    (record,) = make_records(["aspect"], ["cora"], seeds=1)
    bare = record.model_copy(update={"seconds": {}, "peak_memory_bytes": None, "device": ""})
    (line,) = cost_table([bare]).lines
    assert [cell.text for cell in line.cells] == ["cora", "-", "-", "30", "12345", "cpu"]
    assert cost_table(make_records(failed=[lambda _: True])).lines == ()


def test_one_line_per_entry_and_graph():
    table = cost_table(make_records())
    assert len(table.lines) == 6
    assert [line.cells[0].word for line in table.lines] == ["cora"] * 3 + ["texas"] * 3


def with_health(record, mean_cosine):
    health = {
        "mean_cosine": mean_cosine,
        "variance_share": 0.25,
        "effective_rank": 12.3,
        "dim": 64.0,
    }
    return record.model_copy(update={"health": health})


def test_health_is_told_where_records_have_it():
    healthy, other = make_records(["aspect"], ["cora"], seeds=2)
    records = [with_health(healthy, 0.1), with_health(other, 0.3), *make_records(["low"], ["cora"])]
    (line,) = health_table(records).lines
    texts = [cell.text for cell in line.cells]
    assert texts == ["cora", "0.200 ± 0.141", "25.0 ± 0.0", "12.3 ± 0.0", "64"]


def test_records_of_the_first_version_have_no_health():
    assert health_table(make_records()).lines == ()
