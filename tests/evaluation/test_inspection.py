"""Details of a model against the model itself; spectra that are known in closed form."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

from aspect import Embedder, Graph, mixed_graph
from aspect.attacks.projected_ascent import Ascent, SearchScope, ascend
from aspect.data.graph import LabelledGraph, label_graph, unlabelled
from aspect.data.operators import largest_eigenvalue
from aspect.errors import GraphError
from aspect.evaluation import inspection
from aspect.evaluation.details import Details
from aspect.evaluation.inspection import (
    ValueRecorder,
    chebyshev_moments,
    density_shares,
    eigenvalues,
    inspect_model,
    neighbour_agreement,
    planar_map,
    search_model,
)
from aspect.losses.policy_target import channel_costs
from aspect.methods.aspect_s import AspectSConfig
from aspect.methods.registry import find_method, method_names
from aspect.nn.filters import chebyshev_nodes
from aspect.randomness import generator_for
from reference.plain_aspect import PlainAspect

NODES = 60
TINY = {"epochs": 3, "width": 4, "order": 2, "gate_width": 4}


def fitted(graph, method="aspect", recorder=None, **changes):
    known = find_method(method).config.model_fields
    wanted = {name: value for name, value in {**TINY, **changes}.items() if name in known}
    return Embedder(method, device="cpu", seed=3, **wanted).fit(graph, recorder=recorder)


def inspected(model, labelled, **options):
    return inspect_model(model, labelled, title="Ours", graph="mixed", **options)


@pytest.fixture(scope="module")
def labelled():
    return mixed_graph(num_nodes=NODES, degree=5.0, num_features=6, seed=0)


@pytest.fixture(scope="module")
def model(labelled):
    return fitted(labelled.graph)


@pytest.fixture(scope="module")
def details(model, labelled):
    return inspected(model, labelled)


def test_gate_nodes_and_neighbours_are_those_of_model_and_graph(model, labelled, details):
    expected = model.policy(labelled.graph)
    torch.testing.assert_close(torch.tensor(details.gate), expected, rtol=1e-3, atol=0)
    names = (details.method, details.title, details.graph, details.seed)
    assert names == ("aspect", "Ours", "mixed", 3)
    graph = labelled.graph
    assert details.nodes == tuple(range(NODES))
    assert details.degrees == tuple(graph.degrees().tolist())
    assert details.ids is None
    pairs = {(a, b) for a, others in enumerate(details.neighbours) for b in others}
    assert pairs == set(map(tuple, graph.edge_index.t().tolist()))
    assert details.labels == tuple(labelled.labels.tolist())
    expected = neighbour_agreement(graph, labelled.labels)
    assert details.homophily == pytest.approx(expected, rel=1e-3)


def test_band_losses_are_means_over_steps_of_training(labelled):
    """Against the plain form of a step, batch norm by the batch included."""
    # Dropout is drawn otherwise by the two forms; the plain one leaves the first view clean. At a
    # warm temperature, or pooled over many hops, losses are so alike that standard scores show
    # the rounding of what is compared.
    apart = {"temperature": 0.2, "gate_hops": 1}
    model = fitted(labelled.graph, input_dropout=0.0, dropout=0.0, views="one", **apart)
    details, graph = inspected(model, labelled), model.as_seen(labelled.graph)
    method = copy.deepcopy(model.method).train()
    assert method.config.batch_norm
    assert method.config.gate_hops > 0
    plain, total = PlainAspect(method, graph), torch.zeros(2, NODES)
    with torch.no_grad():
        for number in range(inspection.STEPS):
            generator = generator_for(0, "step to look at", number)
            first = plain.embed(plain.features, plain.clean, generator)
            second = plain.embed(*plain.augmented(generator), generator)
            losses = [plain.contrast(a, b) for a, b in zip(first, second, strict=True)]
            pooled = plain.mean_of_neighbours(torch.stack(losses, dim=1), plain.clean)
            total += pooled.t() / inspection.STEPS
    assert list(details.losses) == ["low", "high"]
    found = torch.tensor(list(details.losses.values()))
    torch.testing.assert_close(found, total, rtol=2e-3, atol=1e-4)
    costs = channel_costs(total)
    torch.testing.assert_close(
        torch.tensor(details.cost_gap), costs[1] - costs[0], rtol=2e-3, atol=5e-3
    )


def test_looking_changes_nothing_and_repeats(model, labelled, details):
    before = {name: value.clone() for name, value in model.method.state_dict().items()}
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert inspected(model, labelled) == details
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(model.method.state_dict(), before, rtol=0, atol=0)


def test_the_spectrum_is_that_of_the_method_s_laplacian(labelled, details):
    values = eigenvalues(labelled.graph, self_loops=False).numpy()
    counts, _ = np.histogram(values, bins=details.spectrum.edges)
    assert details.spectrum.is_exact
    assert details.spectrum.shares == pytest.approx(counts / NODES, abs=1e-4)
    assert (details.spectrum.edges[0], details.spectrum.edges[-1]) == (0, 2)
    assert list(details.spectrum.responses) == ["low", "high"]
    low, high = details.spectrum.responses.values()
    assert len(low) == len(high) == len(details.spectrum.frequencies)
    assert low[0] > low[-1]
    assert high[0] < high[-1]


def test_a_large_graph_s_spectrum_is_estimated(model, labelled, details, monkeypatch):
    monkeypatch.setattr(inspection, "MOST_EXACT_NODES", NODES - 1)
    found = inspected(model, labelled).spectrum
    assert not found.is_exact
    assert sum(found.shares) == pytest.approx(1, abs=1e-3)
    exact = np.cumsum(details.spectrum.shares)
    assert np.abs(np.cumsum(found.shares) - exact).max() < 0.1


def test_a_large_graph_is_sampled(model, labelled, details, monkeypatch):
    monkeypatch.setattr(inspection, "MOST_SHOWN_NODES", 20)
    monkeypatch.setattr(inspection, "MOST_NEIGHBOURS", 2)
    part = inspected(model, labelled)
    assert part.num_nodes == NODES
    assert len(part.nodes) == 20
    assert list(part.nodes) == sorted(part.nodes)
    assert part == inspected(model, labelled)
    everyone = {node: place for place, node in enumerate(details.nodes)}
    for name in ("gate", "cost_gap", "degrees", "labels", "homophily"):
        whole = getattr(details, name)
        assert getattr(part, name) == tuple(whole[everyone[node]] for node in part.nodes)
    edges = set(map(tuple, labelled.graph.edge_index.t().tolist()))
    for node, others in zip(part.nodes, part.neighbours, strict=True):
        assert len(others) <= 2
        assert all((node, part.nodes[other]) in edges for other in others)
    assert max(len(others) for others in part.neighbours) == 2


def test_a_perturbed_graph_is_asked_too(model, labelled):
    graph = labelled.graph
    other = Graph.build(graph.features, torch.cat([graph.edge_index, torch.tensor([[0], [9]])], 1))
    (found,) = inspected(model, labelled, perturbed=[("one more", other)]).attacked
    assert found.label == "one more"
    torch.testing.assert_close(torch.tensor(found.gate), model.policy(other), rtol=1e-3, atol=0)
    assert found.homophily == pytest.approx(neighbour_agreement(other, labelled.labels), rel=1e-3)
    assert found.homophily != inspected(model, labelled).homophily
    other = mixed_graph(num_nodes=NODES + 4, num_features=6).graph
    with pytest.raises(GraphError, match=r"must have the 60 nodes.*Got 64 \(grown\)"):
        inspected(model, labelled, perturbed=[("grown", other)])


def test_values_that_some_epochs_lack_keep_their_epochs(labelled):
    """ASPECT-S searches in epochs 3 and 5 of 6 here; other epochs have nothing to tell of it."""
    recorder = ValueRecorder()
    changes = {"epochs": 6, "warm_up": 1, "interval": 2, "perturbation_steps": 1}
    model = fitted(labelled.graph, "aspect-s", recorder, **changes)
    found = inspected(model, labelled, curves=recorder.values)
    for name in ("stability", "search_before", "search_flips", "sensitivity_low", "rayleigh_high"):
        known = [epoch for epoch, value in enumerate(found.curves[name], 1) if value is not None]
        assert (len(found.curves[name]), known) == (6, [3, 5]), name
    assert all(None not in found.curves[name] for name in ("loss", "contrast", "gate_mean"))
    assert Details.model_validate_json(found.model_dump_json()) == found


def test_a_number_that_is_not_finite_is_a_gap(model, labelled):
    curves = {"loss": [2.0, 1.0], "odd": [math.inf, math.nan]}
    found = inspected(model, labelled, curves=curves)
    assert found.curves == {"loss": (2.0, 1.0), "odd": (None, None)}
    text = found.model_dump_json()
    assert Details.model_validate_json(text) == found
    numbers = json.loads(text)["map_x"]
    assert all(len(f"{number:.10g}".lstrip("0.").replace(".", "")) <= 4 for number in numbers)


def test_details_of_the_first_format_are_still_read(details):
    """They know no sensitivity, and a curve with gaps is too short."""
    told = json.loads(details.model_dump_json()) | {"format": 1}
    del told["sensitivity"]
    told["curves"] = {"loss": [2.0, 1.0], "late": [1.0]}
    found = Details.model_validate(told)
    assert (found.format, found.sensitivity) == (1, None)
    assert found.curves == {"loss": (2.0, 1.0), "late": (1.0,)}


@pytest.mark.parametrize("method", method_names())
def test_every_method_can_be_looked_into(labelled, method):
    model = fitted(labelled.graph, method)
    found = inspected(model, labelled, perturbed=[("same", labelled.graph)])
    assert len(found.map_x) == len(found.neighbours) == NODES
    bands = getattr(find_method(method).method, "bands", ())
    assert list(found.losses) == list(bands)
    bank = model.method.filter_bank(labelled.graph, torch.linspace(0, 2, 5))
    assert (found.spectrum is None) == (bank is None)
    assert bank is not None or not bands
    has_gate = model.policy(labelled.graph) is not None
    assert has_gate == (found.gate is not None)
    # Of an ensemble, the gate weights are means over its members, and no evidence stands beside.
    has_evidence = has_gate and bool(bands)
    assert has_evidence == (found.cost_gap is not None) == (found.sensitivity is not None)
    assert len(found.attacked) == int(has_gate)


def odd_graphs():
    features = torch.randn(14, 6, generator=generator_for(0, "odd graphs"))
    ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
    lonely = Graph.build(features, ring, ids=[f"<{k}>" for k in range(14)])
    alike = Graph.build(torch.ones(14, 6), ring)
    pair = Graph.build(features[:2], torch.tensor([[0], [1]]))
    partly = torch.arange(14) % 3 - 1
    return {
        "no labels": unlabelled(lonely),
        "some labels": label_graph(lonely, partly),
        "one class": label_graph(lonely, torch.zeros(14, dtype=torch.long)),
        "no edges": unlabelled(Graph.build(features, torch.zeros(2, 0, dtype=torch.long))),
        "nodes all alike": unlabelled(alike),
        "two nodes": LabelledGraph(pair, torch.tensor([0, 1]), ("a", "b")),
    }


@pytest.mark.parametrize("case", odd_graphs())
def test_odd_graphs_are_shown(case):
    labelled = odd_graphs()[case]
    for method in ("raw", "aspect"):
        found = inspected(fitted(labelled.graph, method), labelled)
        assert found.ids == labelled.graph.ids
        assert bool(found.labels) == bool((labelled.labels >= 0).any())
        assert len(found.homophily) == len(found.labels)
        assert all(0 <= place <= 1 for place in (*found.map_x, *found.map_y))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["constant", "line", "tiny", "huge", "zero"])
def test_every_embedding_has_a_map(kind):
    for nodes in (2, 12):
        random = torch.randn(nodes, 5, generator=generator_for(0, "map"))
        embeddings = {
            "constant": torch.full((nodes, 3), 0.1),
            "line": random[:, :1],
            "tiny": 1e-30 * random,
            "huge": 1e30 * random,
            "zero": torch.zeros(nodes, 2),
        }[kind]
        points, name = planar_map(embeddings)
        assert points.shape == (nodes, 2)
        assert np.isfinite(points).all()
        assert points.min() >= -1e-12
        assert points.max() <= 1 + 1e-12
        again, same_name = planar_map(embeddings)
        assert name == same_name
        assert np.array_equal(points, again)


def test_a_map_keeps_what_lies_together():
    groups = torch.arange(60) % 3
    centres = 5 * torch.randn(3, 16, generator=generator_for(0, "centres"))
    rows = centres[groups] + 0.1 * torch.randn(60, 16, generator=generator_for(1, "rows"))
    found, name = planar_map(rows)
    assert name == "t-SNE"
    points = torch.from_numpy(found)
    distances = torch.cdist(points, points).fill_diagonal_(np.inf)
    assert torch.equal(groups[distances.argmin(1)], groups)


@pytest.mark.gpu
def test_a_model_on_a_gpu_is_looked_into(labelled):
    model = Embedder("aspect", device="cuda", seed=3, **TINY).fit(labelled.graph)
    found = inspected(model, labelled, perturbed=[("same", labelled.graph)])
    torch.testing.assert_close(
        torch.tensor(found.gate), model.policy(labelled.graph), rtol=1e-3, atol=1e-4
    )
    assert found.attacked[0].gate == found.gate
    assert list(found.losses) == list(found.spectrum.responses) == ["low", "high"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([0, 0, 1, 1], [0.5, 0.5, 0.0, None]), ([0, 0, -1, 1], [1.0, 1.0, None, None])],
)
def test_local_homophily_counts_neighbours_of_known_class(labels, expected):
    """Node 0 is joined with 1 and 2, these with each other; node 3 stands alone."""
    graph = Graph.build(torch.rand(4, 2), torch.tensor([[0, 0, 1], [1, 2, 2]]))
    assert neighbour_agreement(graph, torch.tensor(labels)) == expected


RING = 12
EDGES = np.linspace(0, 2, 41).tolist()


@pytest.fixture
def ring():
    nodes = torch.arange(RING)
    return Graph.build(torch.rand(RING, 3), torch.stack([nodes, (nodes + 1) % RING]))


def test_a_ring_has_cosines_for_frequencies(ring):
    expected = 1 - torch.cos(2 * torch.pi * torch.arange(RING, dtype=torch.float64) / RING)
    torch.testing.assert_close(eigenvalues(ring, self_loops=False), expected.sort().values)


@pytest.mark.parametrize("lambda_max", ["two", "power-iteration"])
def test_responses_take_the_learned_values_at_the_nodes(ring, lambda_max):
    model = Embedder("aspect", device="cpu", epochs=2, width=4, lambda_max=lambda_max).fit(ring)
    largest = 2.0 if lambda_max == "two" else largest_eigenvalue(ring, self_loops=False)
    frequencies = (chebyshev_nodes(model.config.order) + 1) * largest / 2
    bank = model.method.filter_bank(ring, frequencies)
    assert bank.self_loops == model.config.self_loops
    for band, own in zip(("low", "high"), model.method.encoder.filters, strict=True):
        torch.testing.assert_close(bank.responses[band].float(), own.values(), atol=1e-5, rtol=0)


def test_eigenvalues_that_are_known_exactly_are_exact():
    """A star has 0, 2 and ones: beside a bin's border rounding would spread them over two bins."""
    leaves = torch.arange(1, 40)
    star = Graph.build(torch.rand(40, 2), torch.stack([torch.zeros_like(leaves), leaves]))
    expected = torch.tensor([0.0, *[1.0] * 38, 2.0], dtype=torch.float64)
    assert torch.equal(eigenvalues(star, self_loops=False), expected)


@pytest.mark.parametrize(("order", "self_loops"), [(1, True), (9, False), (10, True)])
def test_moments_by_unit_probes_are_means_over_the_eigenvalues(ring, order, self_loops):
    probes = torch.eye(RING, dtype=torch.float64)
    moments = chebyshev_moments(ring, order, self_loops=self_loops, probes=probes)
    shifted = eigenvalues(ring, self_loops=self_loops).numpy() - 1
    expected = chebyshev.chebvander(shifted, order).mean(axis=0)
    np.testing.assert_allclose(moments.numpy(), expected, atol=1e-8)


def test_the_density_of_one_eigenvalue_is_a_peak_there():
    value, order = 0.7, 400
    moments = chebyshev.chebvander(np.array([value - 1]), order)[0]
    shares = density_shares(torch.from_numpy(moments), EDGES)
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares.min()) >= 0
    middles = np.convolve(EDGES, [0.5, 0.5], mode="valid")
    assert float(shares.numpy() @ middles) == pytest.approx(value, abs=0.01)
    # 0.7 is a border of two bins, which share it between them.
    assert float(shares[13] + shares[14]) > 0.99


def test_the_estimated_density_follows_the_exact_histogram():
    graph = mixed_graph(num_nodes=300, seed=1).graph
    signs = torch.randint(2, (300, 16), generator=generator_for(0, "probes"))
    moments = chebyshev_moments(graph, 200, self_loops=False, probes=2 * signs.double() - 1)
    below = density_shares(moments, EDGES).cumsum(0).numpy()
    counts, _ = np.histogram(eigenvalues(graph, self_loops=False).numpy(), bins=EDGES)
    exact = counts.cumsum() / 300
    assert np.abs(below - exact).max() < 0.03
    assert np.abs(np.arange(1, 41) / 40 - exact).max() > 0.1  # the bound above says something


# How far a search moves the bands of a trained model, against the search itself

OWN = {"warm_up": 0, "interval": 1, "perturbation_steps": 2, "perturbation_budget": 0.1}
OWN |= {"feature_budget": 0.2, "draws": 1}


def found_by_hand(model, seen, config):
    """The same search, put together from its parts."""
    generator = generator_for(0, "search to look at")
    scope = SearchScope(
        config.candidates, config.feature_budget, config.stability_target, config.rayleigh_weight
    )
    problem = model.method.eval().search_problem(seen, scope, generator)
    how = Ascent(
        steps=config.perturbation_steps,
        budget=round(config.perturbation_budget * seen.num_edges),
        edge_step=config.edge_step,
        step_rule=config.step_rule,
        feature_step=config.feature_step,
        feature_box=config.feature_box,
        discretisation=config.discretisation,
        draws=config.draws,
    )
    return ascend(problem, how, generator)


@pytest.mark.parametrize(("method", "changes"), [("aspect", {}), ("aspect-s", OWN)])
def test_aspect_is_searched_by_default_and_aspect_s_as_its_settings_say(labelled, method, changes):
    graph = labelled.graph
    model = fitted(graph, method, **changes)
    seen = model.as_seen(graph)
    expected = found_by_hand(model, seen, AspectSConfig(**TINY | changes))
    change = search_model(model, seen).found.change
    assert torch.equal(change.flips, expected.change.flips)
    assert torch.equal(change.moves, expected.change.moves)
    found = inspected(model, labelled).sensitivity
    assert found.flips == int(change.flips.sum()) > 0
    assert found.moves == int(change.moves.count_nonzero())
    assert (found.moves > 0) == (method == "aspect-s")  # by default features are left alone
    distances = (expected.seen.views - expected.before.views).norm(dim=2)
    assert float(distances.max()) > 0
    for band, values in zip(("low", "high"), distances, strict=True):
        assert found.distances[band] == pytest.approx(values.tolist(), rel=1e-3)


def test_a_search_changes_nothing_and_repeats(model, labelled):
    seen = model.as_seen(labelled.graph)
    before = {name: value.clone() for name, value in model.method.state_dict().items()}
    state = torch.get_rng_state()
    first, again = search_model(model, seen), search_model(model, seen)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(dict(model.method.state_dict()), before, rtol=0, atol=0)
    assert torch.equal(first.sensitivity, again.sensitivity)


@pytest.mark.parametrize("method", ["raw", "low"])
def test_without_a_choice_of_bands_there_is_nothing_to_hold_against_the_gate(labelled, method):
    assert inspected(fitted(labelled.graph, method), labelled).sensitivity is None


def test_a_graph_whose_search_would_take_too_long_is_not_searched(model, labelled, monkeypatch):
    monkeypatch.setattr(inspection, "MOST_SEARCHED_NODES", NODES - 1)
    assert inspected(model, labelled).sensitivity is None
