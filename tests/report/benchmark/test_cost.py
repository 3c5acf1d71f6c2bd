"""The cost table: what one pre-training took."""

from aspect.report.benchmark.cost import cost_table
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
