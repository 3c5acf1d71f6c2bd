"""The variants of `benchmarks/ideas.py`, and how they are compared."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import edge_keys
from aspect.data.splits import make_splits
from aspect.errors import GraphError
from aspect.evaluation.neutral_probe import NeutralProbe
from aspect.losses.correlation import barlow_loss
from aspect.methods.aspect import AspectMethod
from aspect.methods.base import Step
from aspect.randomness import generator_for
from methods.building import build, generator, step
from reference.graphs import random_graph
from scripts import load_script

script = load_script("ideas")
SETTINGS = {"width": 8, "order": 3, "skip_dim": 4, "epochs": 3, "gate_width": 4}


def small_graph():
    graph = random_graph(num_nodes=24, num_edges=50, num_features=13, density=0.5)
    lower = graph.edge_index[0] < graph.edge_index[1]
    both_ways = torch.arange(len(lower)) % 3 == 0
    return script.DirectedGraph.of(graph, graph.edge_index[:, lower | both_ways])


def config(**changes):
    return script.IdeaConfig(**SETTINGS, **changes)


def embedding_of(variant, seed=0):
    graph = variant.prepare(small_graph())
    method = script.trained(variant, graph, seed, SETTINGS)
    with torch.no_grad():
        return method.embed(graph)


@pytest.mark.parametrize("name", script.VARIANTS)
def test_each_variant_trains_the_same_twice_and_differs_from_the_base(name):
    found = embedding_of(script.VARIANTS[name])
    assert found.isfinite().all()
    assert_close(found, embedding_of(script.VARIANTS[name]), rtol=0, atol=0)
    assert not torch.equal(found, embedding_of(script.VARIANTS[name], seed=1))
    if name != script.BASE:
        base = embedding_of(script.VARIANTS[script.BASE])
        assert found.shape != base.shape or not torch.allclose(found, base)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Decorrelated", {"term_weight": 0}),
        ("Barlow", {"term_weight": 0}),
        ("Masked", {"term_weight": 0}),
        ("Averaged", {"decay": 0}),
    ],
)
def test_weight_zero_is_the_base(kind, changes):
    found = embedding_of(script.Variant(getattr(script, kind), changes))
    assert_close(found, embedding_of(script.Variant()), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["Decorrelated", "Barlow", "Masked"])
def test_a_term_is_added_to_those_of_the_base_with_its_weight(kind):
    graph = small_graph()
    base = build(AspectMethod, config(), graph).loss_terms(graph, step())
    added = []
    for weight in (1.0, 3.0):
        method = build(getattr(script, kind), config(term_weight=weight), graph)
        terms = method.loss_terms(graph, step())
        (name,) = set(terms) - set(base)
        assert_close({key: terms[key] for key in base}, base, rtol=0, atol=0)
        added.append(terms[name])
    assert added[0] > 0
    assert_close(added[1], 3 * added[0])


def test_variance_and_covariance_are_those_of_vicreg():
    x = torch.randn(9, 3, dtype=torch.float64, generator=generator()) * torch.tensor([0.2, 3, 1])
    covariance = torch.cov(x.t())
    hinge = sum(max(0.0, 1 - math.sqrt(covariance[k, k] + 1e-4)) for k in range(3)) / 3
    across = sum(covariance[i, j] ** 2 for i in range(3) for j in range(3) if i != j) / 3
    assert hinge > 0
    assert_close(script.variance_and_covariance(x), hinge + across / 25)


def test_decorrelation_sees_the_fused_embeddings_of_both_views():
    graph = small_graph()
    _, first, second = build(AspectMethod, config(), graph)._two_views(graph, step())
    terms = build(script.Barlow, config(), graph).loss_terms(graph, step())
    assert_close(terms["decorrelation"], barlow_loss(first.fused, second.fused) / 8)


def test_the_average_takes_the_place_of_the_weights_after_the_last_epoch():
    method = build(script.Averaged, config(decay=0.75), small_graph())
    weight = method.encoder.linear.bias
    for epoch, value in enumerate([4.0, 8.0, 0.0], start=1):
        weight.data.fill_(value)
        method.after_step(Step(epoch, generator()))
        assert_close(weight.data, torch.full_like(weight, [4.0, 8.0, 3.75][epoch - 1]))


def test_the_error_of_masked_features_is_the_formula():
    graph = small_graph()
    method = build(script.Masked, config(input_dropout=0, dropout=0), graph)
    found = method.reconstruction(graph, generator_for(1, "mask"))
    keep = script.keep_mask(24, 0.5, generator_for(1, "mask"), torch.float64)
    features = method.ready(graph).features
    seen = torch.stack([row * kept for row, kept in zip(features, keep, strict=True)])
    signal = script.Signal(seen, method.ready(graph).signal.operator)
    decoded = method.decoder(method(signal).fused)
    errors = [
        (1 - torch.cosine_similarity(decoded[i], features[i], dim=0)) ** 2
        for i in range(24)
        if keep[i] == 0
    ]
    assert 0 < len(errors) < 24
    assert_close(found, sum(errors) / len(errors))


def test_a_projector_changes_the_loss_and_no_embedding():
    graph = small_graph()
    base, projected = (build(kind, config(), graph) for kind in (AspectMethod, script.Projector))
    assert_close(projected.eval().embed(graph), base.eval().embed(graph), rtol=0, atol=0)
    terms, expected = (method.train().loss_terms(graph, step()) for method in (projected, base))
    assert not torch.allclose(terms["contrast"], expected["contrast"])
    terms["contrast"].backward()
    assert all(weight.grad.abs().sum() > 0 for weight in projected.projector.parameters())


def test_nodes_of_a_cluster_share_their_gate():
    graph = small_graph()
    method = build(script.Clustered, config(clusters=3), graph)
    weights = method.encode(graph).weights
    cluster_of = method.gate.cluster_of
    assert len(cluster_of.unique()) == len(weights[:, 0].detach().unique()) == 3
    for number in range(3):
        of_cluster = weights[cluster_of == number]
        assert_close(of_cluster, of_cluster[:1].expand_as(of_cluster), rtol=0, atol=0)


def test_a_cluster_for_every_node_is_the_base_without_hops():
    graph = small_graph()
    alone = build(script.Clustered, config(clusters=99), graph)
    base = build(AspectMethod, config(gate_hops=0), graph)
    terms, expected = (method.loss_terms(graph, step()) for method in (alone, base))
    assert_close(terms, expected, rtol=0, atol=0)


def test_a_mean_over_each_cluster():
    x = torch.tensor([[1.0], [2.0], [6.0], [5.0]])
    found = script.cluster_mean(x, torch.tensor([1, 0, 1, 1]))
    assert found.tolist() == [[4.0], [2.0], [4.0], [4.0]]


def dense_operator(graph, weights, copies):
    """By loops: every edge times its weight, every arc times that of its edge."""
    nodes = graph.num_nodes
    places = {int(key): place for place, key in enumerate(edge_keys(graph))}
    matrix = torch.zeros(copies * nodes, copies * nodes, dtype=torch.float64)
    for one, other in graph.arcs.t().tolist():
        weight = weights[places[min(one, other) * nodes + max(one, other)]]
        source, target = one + (copies - 2) * nodes, other + (copies - 1) * nodes
        matrix[source, target] = matrix[target, source] = weight
    if copies == 3:
        for one, other in graph.edge_index.t().tolist():
            matrix[one, other] = weights[places[min(one, other) * nodes + max(one, other)]]
    degrees = matrix.sum(1)
    scale = torch.where(degrees > 0, degrees, 1).rsqrt() * (degrees > 0)
    return -scale.unsqueeze(1) * matrix * scale


@pytest.mark.parametrize("copies", [2, 3])
def test_the_double_cover_is_that_of_its_definition(copies):
    graph = small_graph()
    along = script.CopiedPropagation(graph, copies=copies, self_loops=False)
    x = torch.randn(copies * 24, 3, dtype=torch.float64, generator=generator())
    ones = torch.ones(graph.num_edges, dtype=torch.float64)
    some = (torch.rand(graph.num_edges, generator=generator(1)) < 0.5).double()
    for weights, given in ((ones, None), (some, some)):
        expected = dense_operator(graph, weights, copies)
        assert_close(along.operator(given).copies(x), expected @ x)
        assert torch.linalg.eigvalsh(expected).abs().max() <= 1 + 1e-12
        plain = script.Propagation(graph, self_loops=False).operator(given)
        assert_close(along.operator(given)(x[:24]), plain(x[:24]), rtol=0, atol=0)


def test_directed_bands_are_filters_of_both_copies():
    graph = small_graph()
    method = build(script.Directed, config(batch_norm=False), graph)
    features = method.ready(graph).features
    matrix = dense_operator(graph, torch.ones(graph.num_edges, dtype=torch.float64), 2)
    expected = method.encoder(script.Signal(features.repeat(2, 1), lambda x: matrix @ x))
    (low, high), found = expected, method.encode(graph)
    assert_close(found.bands, torch.stack([low[:24], high[:24], low[24:], high[24:]]))
    assert found.weights.shape == (24, 4)


def test_arcs_that_point_the_other_way_swap_the_bands_of_both_copies():
    graph = small_graph()
    turned = script.DirectedGraph.of(graph, graph.arcs.flip(0))
    bands, swapped = (
        build(script.Directed, config(), given).encode(given).bands for given in (graph, turned)
    )
    assert_close(swapped, bands[[2, 3, 0, 1]])
    assert not torch.allclose(swapped, bands)


def test_six_bands_are_those_of_the_base_and_the_directed_ones():
    graph = small_graph()
    base, four, six = (
        build(kind, config(batch_norm=False), graph).encode(graph).bands
        for kind in (AspectMethod, script.Directed, script.DirectedBeside)
    )
    assert_close(six, torch.cat([base, four]))


def test_directions_are_those_of_the_file(monkeypatch, tmp_path):
    graph = random_graph(num_nodes=4, num_edges=0)
    pairs = torch.tensor([[2, 1, 0, 2, 3], [0, 1, 3, 0, 0]], dtype=torch.int32)
    graph = type(graph).build(graph.features, pairs)
    problem = script.Problem(graph, torch.zeros(4, dtype=torch.long), (), 2, NeutralProbe())
    np.savez(tmp_path / "texas.npz", edge_index=pairs.numpy())
    monkeypatch.setattr(script, "plan_search", lambda *_, **__: script.SearchRequest())
    monkeypatch.setattr(script, "load_problem", lambda *_: problem)
    monkeypatch.setattr(script, "find", lambda name: tmp_path / f"{name}.npz")
    found = script.problem_of("texas").graph
    assert found.arcs.tolist() == [[0, 2, 3], [3, 0, 0]]
    assert torch.equal(found.edge_index, graph.edge_index)
    monkeypatch.setattr(script, "cache_dir", lambda: tmp_path)
    with pytest.raises(GraphError, match="Directions need the graph's own file"):
        script.arcs_of(script.problem_of("texas").graph)


def test_hubs_weigh_less():
    graph = small_graph()
    degrees = [int((graph.edge_index[0] == node).sum()) for node in range(24)]
    expected = [(degrees[one] * degrees[other]) ** -0.5 for one, other in graph.edge_index.t()]
    assert_close(script.with_light_hubs(graph, 0.5).weights, torch.tensor(expected).double())
    unchanged = script.Variant(prepare=lambda graph: script.with_light_hubs(graph, 0.0))
    assert_close(embedding_of(unchanged), embedding_of(script.Variant()))


def four_nodes():
    """0 and 2 point at 1 and 3, which point at none."""
    features = torch.tensor([[1.0, 0.0], [5.0, 6.0], [3.0, 2.0], [7.0, 8.0]])
    arcs = torch.tensor([[0, 0, 2, 2], [1, 3, 1, 3]])
    return script.DirectedGraph.of(script.Graph.build(features, arcs), arcs)


def test_nodes_that_point_at_the_same_share_their_features():
    found = script.dense(script.with_shared_features(four_nodes()).features)
    assert found.tolist() == [[2.0, 1.0], [5.0, 6.0], [2.0, 1.0], [7.0, 8.0]]


def test_the_nodes_that_a_node_points_at_are_columns():
    graph = four_nodes()
    found = script.dense(script.with_neighbour_sets(graph).features)
    assert torch.equal(found[:, :2], script.dense(graph.features))
    assert found[:, 2:].tolist() == [[0, 1, 0, 1], [0] * 4, [0, 1, 0, 1], [0] * 4]
    found = script.dense(script.with_neighbour_sets(graph, directed=False).features)
    assert found[:, 2:].tolist() == [[0, 1, 0, 1], [1, 0, 1, 0]] * 2


def test_rare_columns_weigh_more():
    features = torch.tensor([[1.0, 5.0, 2.0, 1.0], [1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    expected = torch.tensor([0.0, math.log(3 / 2), math.log(3), math.log(3 / 2)])
    assert_close(script.rarity(features), expected)
    assert script.rarity(torch.zeros(3, 1)).isfinite().all()


@pytest.mark.parametrize("idf", [True, False])
def test_components_are_those_of_a_singular_value_decomposition(idf):
    graph = small_graph()
    weights = script.rarity(graph.features) if idf else 1
    whole = torch.nn.functional.normalize(graph.features * weights, dim=1)
    left, values, _ = torch.linalg.svd(whole, full_matrices=False)
    found = script.with_components(graph, 5, idf=idf).features
    assert_close(found.abs(), (left * values)[:, :5].abs())
    assert script.with_components(graph, 99, idf=idf).features.shape == (24, 13)


def test_agreement_ignores_rotation_and_shift():
    x = torch.randn(30, 4, dtype=torch.float64, generator=generator())
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=generator(1))).Q
    assert script.agreement(x, 3 * x @ rotation + 1) == pytest.approx(1)
    other = torch.randn(30, 4, dtype=torch.float64, generator=generator(2))
    assert 0 < script.agreement(x, other) < 0.5
    assert script.agreement(other, x) == pytest.approx(script.agreement(x, other))


def test_groups_that_lie_apart_are_more_separable():
    x = torch.randn(80, 6, generator=generator())
    centres = 10 * torch.eye(6).repeat(14, 1)[:80]
    assert script.separability(x + centres) > 2 * script.separability(x)


def rows(variant, *scores, graph="texas", rank=1.0, separability=1.0, agreement=0.5):
    return [
        {"graph": graph, "settings": "", "variant": variant, "seed": seed, "validation": score}
        | {"rank": rank, "separability": separability, "agreement": agreement, "seconds": 1.0}
        for seed, score in enumerate(scores)
    ]


def test_gains_are_those_over_the_base_with_the_same_seed():
    found = pd.DataFrame(
        [
            *rows("base", 80.0, 90.0),
            *rows("projector", 81.0),
            *rows("base", 50.0, graph="cora"),
            *rows("projector", 49.5, graph="cora"),
            *rows("masked 1", 70.0, 80.0),
        ]
    )
    table = script.gains(found)
    assert list(table.columns) == ["texas", "cora", "mean", "gained on"]
    assert table.loc["base"].tolist() == ["85.0", "50.0", "", ""]
    assert table.loc["projector"].tolist() == ["+1.0", "-0.5", "+0.2", "1"]
    assert table.loc["masked 1"].tolist() == ["-10.0", "-", "-", "0"]
    named = script.gains(found, ["masked 1"])
    assert list(named.columns) == ["texas", "mean", "gained on"]
    assert list(named.index) == ["base", "masked 1"]
    assert script.gains(found, script.STRUCTURAL).empty


def test_a_criterion_chooses_the_strength_where_it_is_highest():
    found = pd.DataFrame(
        [
            *rows("weak", 80.0, 82.0, rank=3.0),
            *rows("base", 84.0, separability=2.0, agreement=math.nan),
            *rows("strong", 80.0),
            *rows("base", 50.0, graph="cora"),
        ]
    )
    table = script.strengths(found)
    assert list(table.index) == ["texas"]
    assert table.loc["texas"].tolist() == ["81.0", "84.0", "80.0", "weak (3.0)", "base (0.0)", "-"]


def test_a_second_call_goes_on_with_what_is_missing(monkeypatch, tmp_path, capsys):
    asked = []

    def results_of(problem, variant, seeds, settings):
        asked.append((problem, variant.kind.__name__, seeds, settings))
        return [
            {"seed": seed, "validation": 80.0, "rank": 1.0, "separability": 1.0}
            | {"agreement": math.nan, "seconds": 1.0}
            for seed in range(seeds)
        ]

    monkeypatch.setattr(script, "problem_of", lambda graph: graph)
    monkeypatch.setattr(script, "results_of", results_of)
    out = ["--out", str(tmp_path / "ideas.csv")]
    base, projector = ["--variant", "base"], ["--variant", "projector"]
    assert script.main(["texas", *base, *out]) == 0
    assert script.main(["texas", *base, *projector, *out]) == 0
    assert script.main(["texas", *base, *out, "--seeds", "2"]) == 0
    assert script.main(["texas", *base, *out, "--set", "width=8"]) == 0
    assert script.main(["texas", *base, *projector, *out]) == 0
    assert asked == [
        ("texas", "AspectMethod", 1, {}),
        ("texas", "Projector", 1, {}),
        ("texas", "AspectMethod", 2, {}),
        ("texas", "AspectMethod", 1, {"width": 8}),
    ]
    assert len(pd.read_csv(out[1])) == 4
    capsys.readouterr()
    assert script.main(out) == 0
    assert "| projector | +0.0 | +0.0 | 0 |" in capsys.readouterr().out


def test_results_have_scores_and_what_needs_no_label():
    labels = torch.arange(24) % 2
    splits = tuple(make_splits("search", labels, 2, count=2))
    problem = script.Problem(small_graph(), labels, splits, 2, NeutralProbe())
    found = script.results_of(problem, script.VARIANTS["projector"], 2, SETTINGS)
    assert [row["seed"] for row in found] == [0, 1]
    assert all(set(row) == set(script.COLUMNS[3:]) for row in found)
    assert found[0]["agreement"] == found[1]["agreement"] < 1
    (single,) = script.results_of(problem, script.VARIANTS["projector"], 1, SETTINGS)
    assert math.isnan(single["agreement"])
    assert single["validation"] == found[0]["validation"]


def test_the_lab_book_has_the_tables_of_the_results():
    found = script.read_results(script.ROOT / "results" / "ideas.csv")
    written = (script.ROOT / "docs" / "lab_book.md").read_text(encoding="utf-8")
    defaults, smaller = (found[found.settings == told] for told in ("", "epochs=100 width=128"))
    assert script.in_lab_book(script.gains(defaults, script.STRUCTURAL)) in written
    assert script.in_lab_book(script.gains(smaller, script.STRUCTURAL)) in written
    assert script.in_lab_book(script.gains(smaller, script.GENERAL)) in written
    assert script.in_lab_book(script.strengths(smaller)) in written
