"""ASPECT-S: when it searches, what it minimises, what it costs, and that it is ASPECT else."""

import copy
import statistics
import time

import pytest
import torch
from torch.testing import assert_close

from aspect import Aspect, Embedder, mixed_graph
from aspect.attacks.projected_ascent import (
    Change,
    SearchScope,
    ascend,
    draw_entries,
    draw_pairs,
    stability,
)
from aspect.data.graph import Graph
from aspect.data.source import load_named
from aspect.losses.edges import rayleigh_energy
from aspect.losses.policy_target import channel_costs
from aspect.methods import aspect, aspect_s
from aspect.methods.aspect import AspectConfig, AspectMethod
from aspect.methods.aspect_s import AspectSConfig, AspectSMethod, SearchCost
from aspect.methods.base import Step
from aspect.methods.registry import find_method, method_names
from aspect.nn.spectral_encoder import Signal
from aspect.training.trainer import train
from attacks.searches import BASE, generator, make, problem_of, small_graph
from reference import inner_problem as reference
from reference.graphs import random_graph
from training.toys import MemoryRecorder

OWN = {name: value for name, value in BASE.items() if name in AspectConfig.model_fields}


def step(epoch=1, seed=5):
    return Step(epoch, torch.Generator().manual_seed(seed))


def searched(method, graph, epoch=1):
    """The perturbed graph of an epoch, whose search draws by a generator apart."""
    return method.search(graph, step(epoch).apart("perturbation"))


def state_after(stable, epochs, **settings):
    graph = mixed_graph(num_nodes=40, degree=4.0, num_features=6, seed=0)
    quick = {"width": 8, "epochs": epochs, "device": "cpu", **settings}
    model = Aspect(stable=stable, **quick).fit(graph)
    return model.method.state_dict()


def test_where_no_search_is_due_training_is_byte_for_byte_that_of_aspect():
    plain = state_after(False, 6)
    stable = state_after(True, 6, warm_up=6)
    assert plain.keys() == stable.keys()
    assert all(torch.equal(plain[name], stable[name]) for name in plain)


def test_the_schedule_is_the_papers():
    method = make(small_graph(), warm_up=5, interval=3)
    assert [epoch for epoch in range(1, 16) if method.is_due(epoch)] == [8, 11, 14]
    always = make(small_graph(), warm_up=0, interval=1)
    assert all(always.is_due(epoch) for epoch in range(1, 5))


def test_an_epoch_after_a_search_is_aspects():
    graph = small_graph()
    method = make(graph, warm_up=0, interval=2).train()
    plain = AspectMethod(AspectConfig(**OWN), graph.num_features).to(graph.dtype).train()
    plain.load_state_dict(method.state_dict())
    assert "stability" in method.loss_terms(graph, step(epoch=2))
    assert any(name.startswith("search") for name in method.monitors())
    found, expected = (each.loss_terms(graph, step(epoch=3)) for each in (method, plain))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not any(name.startswith("search") for name in method.monitors())


def test_the_plain_terms_of_an_epoch_with_a_search_are_those_of_aspect():
    graph = small_graph()
    method = make(graph, sensitivity_weight=0.0, dropout=0.3).train()
    plain = AspectMethod(AspectConfig(**OWN | {"dropout": 0.3}), graph.num_features)
    plain = plain.to(graph.dtype).train()
    plain.load_state_dict(method.state_dict())
    expected = plain.loss_terms(graph, step())
    found = method.loss_terms(graph, step())
    assert set(found) == {*expected, "stability"}
    for name, term in expected.items():
        assert torch.equal(found[name], term), name


@pytest.mark.parametrize("target", ["fused", "band"])
def test_the_stability_loss_is_the_formula(target):
    graph = small_graph()
    method = make(graph, batch_norm=False, stability_target=target, stability_weight=1.7)
    terms = method.train().loss_terms(graph, step())
    perturbed = searched(method, graph)
    clean = method.encode(graph)
    bands = method.encoder(perturbed.signal)
    total = 0.0
    for band, own, weights in zip(bands, clean.bands, clean.weights.t(), strict=True):
        keys = clean.fused if target == "fused" else own
        total = total + (weights * reference.losses(band, keys, method.config.temperature)).mean()
    assert_close(terms["stability"], 1.7 * total)


def test_the_stability_loss_compares_graphs_that_are_rescaled_alike():
    graph = small_graph()
    method = make(graph, batch_norm=False, lambda_max="power-iteration").train()
    other = make(graph, batch_norm=False, lambda_max="two").train()
    assert method.ready(graph).propagation.lambda_max < 2
    found, expected = (each.loss_terms(graph, step())["stability"] for each in (method, other))
    assert_close(found, expected)


def test_the_stability_loss_trains_encoder_and_gate():
    graph = small_graph()
    method = make(graph).train()
    method.loss_terms(graph, step())["stability"].backward()
    for part in (method.encoder.linear.weight, *method.gate.network.parameters()):
        assert float(part.grad.abs().max()) > 0


def test_the_policy_target_has_the_sensitivity_in_its_cost(monkeypatch):
    graph = small_graph()
    costs = []
    honest = aspect.policy_target
    monkeypatch.setattr(aspect, "policy_target", lambda *a: costs.append(a[0]) or honest(*a))
    plain, stable = (
        make(graph, sensitivity_weight=weight, batch_norm=False).train() for weight in (0.0, 0.6)
    )
    for method in (plain, stable):
        method.loss_terms(graph, step())
    moved = searched(stable, graph).sensitivity
    assert not moved.requires_grad
    assert_close(costs[-1], costs[0] + 0.6 * channel_costs(moved))  # the last is trained by


def test_sensitivity_is_how_far_the_bands_move_when_nothing_is_dropped():
    graph = small_graph()
    method = make(graph, dropout=0.5, input_dropout=0.5).train()
    probe = method.search(graph, generator())
    method.eval()
    with torch.no_grad():
        changed, clean = method.encoder(probe.signal), method.encode(graph).bands
    assert_close(probe.sensitivity, (changed - clean).norm(dim=2))
    assert float(probe.sensitivity.min()) >= 0


def test_sensitivity_on_unit_rows_is_how_far_the_directions_turn():
    graph = small_graph()
    method = make(graph, unit_sensitivity=True).train()
    probe = method.search(graph, generator())
    method.eval()
    with torch.no_grad():
        changed, clean = method.encoder(probe.signal), method.encode(graph).bands
    cosines = torch.cosine_similarity(changed, clean, dim=2)
    assert_close(probe.sensitivity, (2 - 2 * cosines).clamp(min=0).sqrt())


def test_patience_compares_epochs_with_a_search_and_without_by_the_same_terms():
    graph = small_graph()
    method = make(graph, sensitivity_weight=2.0).train()
    plain = AspectMethod(AspectConfig(**OWN), graph.num_features).to(graph.dtype).train()
    plain.load_state_dict(method.state_dict())
    found, expected = (each.loss_terms(graph, step()) for each in (method, plain))
    assert not torch.equal(found["policy"], expected["policy"])  # by another target
    assert_close(method.watched(found), plain.watched(expected), rtol=0, atol=0)
    assert_close(plain.watched(expected), expected["contrast"] + expected["policy"])


def test_draws_made_before_a_step_are_those_of_the_step_and_stay_where_they_are():
    graph = random_graph(60, 90, seed=0, density=0.2)  # with room for as many pairs at every draw
    method, other = make(graph).train(), make(graph).train()
    keys, places = [], []
    for epoch in (1, 2, 3):
        now = step(epoch, seed=epoch)
        method.before_step(graph, now)
        keys.append(method.capture_key(now))
        places.append(method._drawn.candidates.pairs.data_ptr())
        found, expected = (each.loss_terms(graph, step(epoch, epoch)) for each in (method, other))
        assert_close(found, expected, rtol=0, atol=0)
    assert len(set(keys)) == len(set(places)) == 1
    method.before_step(small_graph(seed=3), step())
    assert method.capture_key(step()) not in (None, keys[0])
    # Drawn negatives cannot be captured.
    few = make(graph, negatives=5).train()
    few.before_step(graph, step())
    assert few.capture_key(step()) is None


def test_a_search_leaves_the_model_as_it_was():
    graph = small_graph()
    method = make(graph).train()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method.search(graph, generator())
    assert method.training
    assert_close(dict(method.state_dict()), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in method.parameters())


def test_an_outer_step_holds_no_embeddings_of_the_search():
    graph = small_graph()
    perturbed = make(graph).train().search(graph, generator())
    for seen in (perturbed.found.before, perturbed.found.seen):
        assert seen.views.untyped_storage().nbytes() == 0


def test_the_ablations_are_settings():
    graph = small_graph()
    without_rayleigh = make(graph, rayleigh_weight=0.0)
    problem = problem_of(without_rayleigh, graph)
    seen = problem.see(problem.nothing())
    losses = torch.stack(
        [problem.contrast(a, b) for a, b in zip(seen.views, problem.keys, strict=True)]
    )
    assert_close(seen.objective, stability(losses, problem.weights))
    only_target = make(graph, stability_weight=0.0).train()
    assert "stability" not in only_target.loss_terms(graph, step())


# Values that only epochs with a search have

SEARCHING = {"epochs": 12, "warm_up": 2, "interval": 4, "perturbation_steps": 1, "draws": 1}
SEARCHING |= {"width": 4, "order": 2, "gate_width": 4}
OF_A_SEARCH = {"stability", "search_before", "search_after", "search_flips", "search_moves"}
OF_A_SEARCH |= {f"sensitivity_{band}" for band in ("low", "high")}
OF_A_SEARCH |= {f"rayleigh_{band}{end}" for band in ("low", "high") for end in ("", "_changed")}


def trained(start=None):
    graph = mixed_graph(num_nodes=40, degree=4.0, num_features=6, seed=0)
    recorder, model = MemoryRecorder(start), Embedder("aspect-s", device="cpu", **SEARCHING)
    return model.fit(graph, recorder=recorder), recorder


def test_an_epoch_reports_what_it_has_and_its_terms_sum_to_the_loss():
    _, recorder = trained()
    always = set(recorder.reports[0].values)
    assert {"loss", "contrast", "channels", "policy", "gate_mean", "gate_std"} == always
    for report in recorder.reports:
        assert set(report.values) == always | (OF_A_SEARCH if report.epoch in (6, 10) else set())
        terms = ("contrast", "channels", "policy", "stability")
        total = sum(report.values.get(name, 0.0) for name in terms)
        assert report.values["loss"] == pytest.approx(total, rel=1e-5)


def test_a_training_resumed_around_a_search_ends_as_the_whole():
    whole, recorder = trained()
    for last in (5, 6, 7):
        resumed, rest = trained(recorder.snapshots[last - 1])
        assert rest.reports == recorder.reports[last:]
        states = (dict(model.method.state_dict()) for model in (resumed, whole))
        assert_close(*states, rtol=0, atol=0)


# On the model as trained


def flipped(method, graph, problem, flips):
    return Signal(method.ready(graph).features, problem.edges.operator(flips))


def random_flips(problem, flips, draw):
    """As many edges removed and as many pairs joined, of the same candidates."""
    chosen = torch.zeros_like(flips)
    for pool in (problem.edges.present.bool(), ~problem.edges.present.bool()):
        pairs = pool.nonzero().squeeze(1)
        count = int(flips[pool].sum())
        chosen[pairs[torch.randperm(len(pairs), generator=draw)[:count]]] = 1
    return chosen


@torch.no_grad()
def stability_loss(method, graph, signal, *, training):
    """Of a changed graph, nothing dropped: by statistics of the batch, or by stored ones."""
    model = copy.deepcopy(method).train(training)
    clean, changed = model(model.ready(graph).bounded), model.encoder(signal)
    total = 0.0
    for band, weights in zip(changed, clean.weights.t(), strict=True):
        losses = model.node_losses(band, clean.fused, generator()).rows
        total = total + float((weights * losses).mean())
    return total


def assert_the_search_beats_random_flips(method, graph, draws=4):
    problem, perturbed = problem_of(method, graph, seed=1), method.search(graph, generator(1))
    flips, draw = perturbed.found.change.flips, generator(2)
    assert int(flips.sum()) > 0
    drawn = [random_flips(problem, flips, draw) for _ in range(draws)]
    assert all(int(other.sum()) == int(flips.sum()) for other in drawn)
    for training in (True, False):
        clean, searched, *random = (
            stability_loss(
                method, graph, flipped(method, graph, problem, change), training=training
            )
            for change in (torch.zeros_like(flips), flips, *drawn)
        )
        gain, random_gain = searched - clean, sum(random) / draws - clean
        assert gain > 0, f"training {training}: {clean} to {searched}"
        assert gain > random_gain, f"training {training}: {gain} against {random_gain}"


def with_batch_norm(graph, **settings):
    """Trained without searches; only edges may be changed, and their loss alone is climbed."""
    changes = {"batch_norm": True, "feature_budget": 0.0, "rayleigh_weight": 0.0, **settings}
    config = AspectSConfig(**{"warm_up": 10_000, "stability_target": "fused", **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        method = AspectSMethod(config, graph.num_features).to(graph.dtype)
    train(method, graph, seed=0)
    return method


@pytest.mark.parametrize("layer_order", ["filter-first", "project-first"])
def test_a_search_moves_the_model_as_trained_more_than_random_flips_do(layer_order):
    mixed = mixed_graph(num_nodes=120, degree=6.0, num_features=12, seed=0).graph
    # Far smaller than a running variance that begins with one: averages of a short training are
    # those of another function, on which a search can lower this loss.
    graph = Graph.build(0.01 * mixed.features, mixed.edge_index)
    small = {"width": 16, "epochs": 30, "learning_rate": 0.01, "row_normalise": False}
    method = with_batch_norm(graph, layer_order=layer_order, **small)
    assert_the_search_beats_random_flips(method, graph)


def test_a_search_in_the_midst_of_training_sees_the_statistics_of_now():
    graph = small_graph()
    method = make(graph, dropout=0.5, input_dropout=0.5).train()  # statistics that are not its own
    now = copy.deepcopy(method)
    now.calibrate(graph)
    assert not torch.allclose(method.encoder.norm.running_var, now.encoder.norm.running_var)
    method.loss_terms(graph, step())
    assert method.training
    assert method.encoder.training
    found, expected = (dict(each.encoder.state_dict()) for each in (method, now))
    assert_close(found, expected, rtol=0, atol=0)
    energies = [method.monitors()[f"rayleigh_{band}"] for band in method.bands]
    clean = now.train().encode(graph).bands  # by batch statistics
    operator = now.ready(graph).bounded.operator
    assert_close(energies, [rayleigh_energy(operator, band.detach()) for band in clean])


@pytest.mark.gpu
def test_a_search_on_a_gpu_does_harm_within_its_budgets():
    graph = small_graph().to(torch.float32).to("cuda")
    method = make(graph).to("cuda").eval()
    draw = torch.Generator("cuda").manual_seed(0)
    found = ascend(method.search_problem(graph, method.scope, draw), method.ascent(graph), draw)
    assert float(found.seen.objective) > float(found.before.objective)
    assert int(found.change.flips.sum()) <= round(0.2 * graph.num_edges)
    perturbed = method.search(graph, torch.Generator("cuda").manual_seed(0))
    with torch.no_grad():
        assert_close(method.encoder(perturbed.signal), found.seen.views, rtol=1e-4, atol=1e-5)
    terms = method.train().loss_terms(graph, Step(1, torch.Generator("cuda").manual_seed(0)))
    sum(terms.values()).backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)


# The search problem of any model with bands


@pytest.mark.parametrize("target", ["fused", "band"])
def test_a_plain_model_has_the_problem_of_a_stable_one(target):
    graph = small_graph()
    stable = make(graph, stability_target=target).eval()
    plain = AspectMethod(AspectConfig(**OWN), graph.num_features).to(graph.dtype).eval()
    plain.load_state_dict(stable.state_dict())
    scope = SearchScope(1.0, 0.2, target, 0.7)
    first, second = problem_of(stable, graph), plain.search_problem(graph, scope, generator())
    flips = torch.rand(len(first.edges.keys), generator=generator(1), dtype=graph.dtype)
    moves = torch.randn(first.entries.count, generator=generator(2), dtype=graph.dtype)
    change = Change(flips, moves)
    assert torch.equal(first.see(change).objective, second.see(change).objective)


def test_the_scope_decides_what_may_change_and_what_is_maximised():
    graph = small_graph()
    method = make(graph).eval()
    wide, narrow = (
        method.search_problem(graph, SearchScope(candidates, entries, "band", 0.0), generator())
        for candidates, entries in ((0.5, 0.1), (0.0, 0.0))
    )
    assert len(narrow.edges.keys) == graph.num_edges
    assert len(wide.edges.keys) == graph.num_edges + round(0.5 * graph.num_edges)
    assert (narrow.entries.count, wide.rayleigh_weight) == (0, 0.0)
    assert wide.entries.count > 0
    with torch.no_grad():
        assert_close(wide.keys, method.encode(graph).bands)


@pytest.mark.parametrize("name", ["low", "random"])
def test_a_search_gives_the_model_no_gradient(name):
    graph, entry = small_graph(), find_method(name)
    method = entry.method(AspectConfig(**OWN), graph.num_features).to(graph.dtype)
    problem = method.search_problem(graph, SearchScope(1.0, 0.0, "band", 0.0), generator())
    flips = torch.zeros(len(problem.edges.keys), dtype=graph.dtype, requires_grad=True)
    problem.see(Change(flips, problem.nothing().moves)).objective.backward()
    assert flips.grad is not None
    assert all(parameter.grad is None for parameter in method.parameters())


# Runtime and memory, against counts by hand and against the clock

NODES = 24  # of the small graph


def cost_of(**changes):
    return SearchCost.of(AspectSConfig(**BASE | changes), small_graph(), 2, None)


@pytest.mark.parametrize("warm_up", [0, 5])
@pytest.mark.parametrize("interval", [1, 3])
def test_searches_are_counted_as_they_are_due(warm_up, interval):
    for epochs in (0, 4, 5, 6, 7, 40):
        changes = {"epochs": epochs, "warm_up": warm_up, "interval": interval}
        method = make(small_graph(), **changes)
        due = sum(method.is_due(epoch) for epoch in range(1, epochs + 1))
        assert cost_of(**changes).searches == due


@pytest.mark.parametrize("candidates", [0.0, 0.5, 2.0])
def test_pairs_and_entries_are_those_that_are_drawn(candidates):
    graph = mixed_graph(num_nodes=200, degree=4.0, num_features=16).graph
    config = AspectSConfig(candidates=candidates, feature_budget=0.2)
    found = SearchCost.of(config, graph, 2, None)
    others = round(candidates * graph.num_edges)
    pairs, _ = draw_pairs(graph, others, generator())
    assert len(pairs) <= found.pairs
    assert found.pairs == pytest.approx(len(pairs), rel=0.05)
    entries, _ = draw_entries(graph.features, 0.2, generator())
    assert found.entries == len(entries)


def test_products_are_counted(monkeypatch):
    """By hand, with nothing but similarities: they alone grow with the square of the nodes."""
    monkeypatch.setattr(aspect_s, "SPARSE", 0)
    monkeypatch.setattr(aspect_s, "ENTRY", 0)
    monkeypatch.setattr(aspect_s, "_encoding", lambda *_: 0)
    # Three contrasts, a product forth and two back; a step has two, of which one goes back.
    changes = {"order": 1, "width": 10**6, "channel_weight": 1.0, "draws": 3}
    steps = cost_of(**changes, perturbation_steps=4)
    contrast = NODES * NODES
    combined = 2 * 2 * NODES
    look = 2 * contrast + combined
    back = 2 * contrast + combined
    expected = (4 * (look + back) + 4 * look + 2 * 3 * contrast) / (3 * 3 * contrast)
    assert steps.search_factor == pytest.approx(1 + expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"perturbation_steps": 5},
        {"draws": 4},
        {"candidates": 2.0},
        {"interval": 1, "warm_up": 0, "epochs": 7},
        {"channel_weight": 0.0},  # ASPECT's own epoch is cheaper
    ],
)
def test_what_costs_more_is_said_to(changes):
    base = {"interval": 2, "warm_up": 2, "epochs": 7, "channel_weight": 1.0}
    assert cost_of(**base | changes).epoch_factor > cost_of(**base).epoch_factor


def outlook(graph, **settings):
    return Aspect(stable=True, device="cpu", **settings).outlook(graph)


def test_the_user_is_told_what_the_searches_take():
    graph = mixed_graph(num_nodes=60, degree=4.0, num_features=6)
    settings = {"width": 8, "epochs": 40, "warm_up": 10, "interval": 10, "perturbation_steps": 4}
    settings["feature_budget"] = 0.1
    sentence, *_ = outlook(graph, **settings)  # a busy machine adds a word on its time
    edges = graph.graph.num_edges
    start = "ASPECT-S searches for harmful perturbations in 3 of 40 epochs, 4 steps over up to "
    assert sentence.startswith(f"{start}{2 * edges:,} pairs and 36 feature entries: ")
    assert "times as long as one of ASPECT" in sentence
    assert "MB more memory." in sentence
    assert "in at most 3 of 40" in outlook(graph, **settings, patience=5)[0]


@pytest.mark.parametrize("settings", [{"epochs": 20}, {"epochs": 0}, {"epochs": 29}])
def test_the_user_is_warned_where_no_search_is_ever_due(settings):
    graph = mixed_graph(num_nodes=60, degree=4.0, num_features=6)
    (sentence,) = outlook(graph, width=8, warm_up=20, interval=10, **settings)
    assert sentence.startswith("ASPECT-S will never search, which makes this plain ASPECT: ")
    assert f"warm_up is 20 and interval 10, but epochs only {settings['epochs']}." in sentence


def test_other_methods_have_nothing_to_announce():
    graph = mixed_graph(num_nodes=60, degree=4.0, num_features=6)
    silent = [name for name in method_names() if name != "aspect-s"]
    told = [Embedder(name, device="cpu", epochs=2).outlook(graph) for name in silent]
    assert told == [()] * len(silent)


def measured(graph, config):
    """Processor time of an epoch with a search over that of one without; they take turns."""
    method = AspectSMethod(config, graph.num_features).train()
    optimiser = torch.optim.Adam(method.parameters(), lr=1e-4)

    def seconds(epoch):
        start = time.process_time()
        terms = method.loss_terms(graph, Step(epoch, generator(epoch)))
        optimiser.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        optimiser.step()
        return time.process_time() - start

    rounds = [(seconds(1), seconds(2)) for _ in range(4)][1:]
    plain, searching = (statistics.median(times) for times in zip(*rounds, strict=True))
    return searching / plain


def graphs():
    yield pytest.param(lambda: mixed_graph().graph, id="mixed")
    yield pytest.param(lambda: load_named("cora").graph, id="cora", marks=pytest.mark.data)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make_graph", [*graphs()])
def test_the_count_is_within_a_factor_of_the_clock(make_graph):
    """Processor time of one thread, which does not depend on what else the machine does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        graph = make_graph().to(torch.float32)
        config = AspectSConfig(warm_up=0, interval=2, epochs=2)
        counted = SearchCost.of(config, graph, 2, None).search_factor
        ratio = counted / measured(graph, config)
        assert max(ratio, 1 / ratio) < 1.5
    finally:
        torch.set_num_threads(threads)
