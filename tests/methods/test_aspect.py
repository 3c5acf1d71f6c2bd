"""ASPECT: its loss and gradients against a plain form, its cost, views, gate and readout."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph
from aspect.data.operators import RescaledLaplacian
from aspect.data.synthetic import mixed_graph
from aspect.methods import aspect
from aspect.methods.aspect import DRAWN_BEYOND, EXACT_UP_TO, AspectConfig, AspectMethod
from aspect.methods.controls import HighBandOnly, LowBandOnly
from aspect.nn.gate import fuse
from aspect.training.trainer import train
from methods.building import build, step
from reference.graphs import random_graph
from reference.plain_aspect import PlainAspect

# Every setting that a test could depend on; defaults may change.
BASE = {
    "row_normalise": True,
    "self_loops": True,
    "lambda_max": "two",
    "order": 3,
    "width": 8,
    "learned_start": True,
    "input_dropout": 0.0,
    "dropout": 0.0,
    "batch_norm": False,
    "activation": "prelu",
    "layer_order": "filter-first",
    "fusion": "node-wise",
    "gate_width": 6,
    "gate_input": "layer-norm",
    "gate_hops": 0,
    "gate_gradient": True,
    "readout": "fused",
    "centred": False,
    "unit_rows": False,
    "skip_weight": 0.0,
    "skip_dim": 4,
    "views": "one",
    "edge_drop": 0.3,
    "column_mask": 0.3,
    "temperature": 0.4,
    "symmetric": True,
    "negatives": None,
    "channel_weight": 1.5,
    "policy_weight": 0.7,
    "gate_temperature": 0.5,
}
DROPPING = {"input_dropout": 0.4, "dropout": 0.3}


def make(graph, kind=AspectMethod, **changes):
    return build(kind, AspectConfig(**(BASE | changes)), graph, seed=11)


def gradients(terms, method):
    total = torch.stack(list(terms.values())).sum()
    named = dict(method.named_parameters())
    found = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    return dict(zip(named, found, strict=True))


@pytest.fixture(params=[0.2, 1.0], ids=["sparse", "dense"])
def graph(request):
    return random_graph(
        num_nodes=24, num_edges=50, num_features=13, isolated=2, density=request.param * 0.6
    )


@pytest.fixture
def one_graph():
    return random_graph(num_nodes=24, num_edges=50, num_features=13, isolated=2)


class TestPlainForm:
    def check(self, graph, **changes):
        method = make(graph, **changes)
        plain = PlainAspect(method, graph)
        fast_terms, plain_terms = method.loss_terms(graph, step()), plain.loss_terms(step())
        assert list(fast_terms) == list(plain_terms)
        assert_close(fast_terms, plain_terms)
        fast, slow = gradients(fast_terms, method), gradients(plain_terms, method)
        assert any(gradient is not None and bool(gradient.any()) for gradient in fast.values())
        for name, expected in slow.items():
            found = fast[name]
            assert (found is None) == (expected is None), name
            if expected is not None:
                assert_close(
                    found, expected, rtol=1e-6, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}"
                )

    @pytest.mark.parametrize("layer_order", ["filter-first", "project-first"])
    @pytest.mark.parametrize("views", ["one", "both"])
    @pytest.mark.parametrize(("symmetric", "batch_norm"), [(True, False), (False, True)])
    def test_terms_and_gradients_agree(self, graph, layer_order, views, symmetric, batch_norm):
        changes = {"symmetric": symmetric, "batch_norm": batch_norm}
        self.check(graph, layer_order=layer_order, views=views, **changes)

    @pytest.mark.parametrize(
        "changes",
        [
            {"fusion": "global"},
            {"fusion": "half"},
            {"channel_weight": 0.0},
            {"policy_weight": 0.0},
            {"channel_weight": 0.0, "policy_weight": 0.0},
            {"gate_gradient": False},
            {"gate_input": "raw"},
            {"gate_hops": 2},
            {"row_normalise": False, "self_loops": False, "learned_start": False},
            {"edge_drop": 0.0},
            {"column_mask": 0.0},
            {"edge_drop": 0.0, "column_mask": 0.0, "activation": "relu"},
            {"temperature": 0.01},
        ],
        ids=str,
    )
    def test_every_setting_agrees(self, one_graph, changes):
        for layer_order in ("filter-first", "project-first"):
            self.check(one_graph, layer_order=layer_order, **changes)

    def test_both_orders_agree_without_dropout_and_norm(self, graph):
        first, second = (make(graph, layer_order=one) for one in ("filter-first", "project-first"))
        terms = first.loss_terms(graph, step())
        others = second.loss_terms(graph, step())
        assert_close(terms, others)
        assert_close(gradients(terms, first), gradients(others, second), rtol=1e-6, atol=1e-10)
        assert_close(first.eval().embed(graph), second.eval().embed(graph))


class TestCost:
    @pytest.fixture
    def propagations(self, monkeypatch):
        calls = []
        honest = RescaledLaplacian.__call__

        def counted(self, x):
            calls.append(x.shape[1])
            return honest(self, x)

        monkeypatch.setattr(RescaledLaplacian, "__call__", counted)
        return calls

    @pytest.mark.parametrize("policy_weight", [0.0, 0.7])
    @pytest.mark.parametrize("views", ["one", "both"])
    def test_two_encoder_calls_per_step_and_the_policy_adds_none(self, graph, policy_weight, views):
        method = make(graph, policy_weight=policy_weight, views=views)
        calls = []
        method.encoder.register_forward_hook(lambda *_: calls.append(1))
        terms = method.loss_terms(graph, step())
        assert ("policy" in terms) == (policy_weight > 0)
        assert len(calls) == 2

    @pytest.mark.parametrize(
        ("changes", "contrasts"),
        [
            ({}, 3),
            ({"channel_weight": 0.0}, 3),
            ({"policy_weight": 0.0}, 3),
            ({"channel_weight": 0.0, "policy_weight": 0.0}, 1),
            ({"channel_weight": 0.0, "fusion": "global"}, 1),
        ],
    )
    def test_bands_are_contrasted_only_where_something_follows(
        self, one_graph, monkeypatch, changes, contrasts
    ):
        calls = []
        method = make(one_graph, **changes)
        honest = method.node_losses
        monkeypatch.setattr(method, "node_losses", lambda *a: calls.append(a) or honest(*a))
        method.loss_terms(one_graph, step())
        assert len(calls) == contrasts

    def test_both_bands_of_a_view_share_their_propagations(self, graph, propagations):
        method = make(graph, order=4, **DROPPING)
        method.prepare(graph)
        propagations.clear()
        method.loss_terms(graph, step())
        assert propagations == [graph.num_features] * 8

    @pytest.mark.parametrize(("width", "propagated"), [(6, 6), (8, 13)])
    def test_project_first_propagates_what_takes_less(self, graph, propagations, width, propagated):
        """A projection, forth and back, or the thirteen features, which have no gradient."""
        method = make(graph, order=4, width=width, layer_order="project-first", **DROPPING)
        method.prepare(graph)
        propagations.clear()
        method.loss_terms(graph, step())
        assert propagations == [propagated] * 8

    def test_project_first_is_the_same_in_either_order(self, graph):
        method = make(graph, width=6, layer_order="project-first").double()
        graph = graph.to(torch.float64)
        found = []
        for filters_projection in (True, False):
            method.encoder.filters_projection = filters_projection
            loss = sum(method.loss_terms(graph, step()).values())
            found.append(torch.autograd.grad(loss, list(method.parameters())))
        torch.testing.assert_close(*found)

    @pytest.mark.parametrize(("edge_drop", "expected"), [(0.0, 0), (0.3, 4)])
    def test_the_clean_graphs_basis_is_kept_without_input_dropout(
        self, graph, propagations, edge_drop, expected
    ):
        method = make(graph, order=4, dropout=0.3, edge_drop=edge_drop)
        method.prepare(graph)
        assert len(propagations) == 4
        propagations.clear()
        method.loss_terms(graph, step())
        assert len(propagations) == expected


class TestBandLosses:
    @pytest.mark.parametrize("views", ["one", "both"])
    @pytest.mark.parametrize("hops", [0, 2])
    def test_they_are_the_evidence_of_the_policy_target(self, one_graph, monkeypatch, views, hops):
        seen = []
        monkeypatch.setattr(
            aspect, "channel_costs", lambda evidence: seen.append(evidence) or evidence
        )
        method = make(one_graph, views=views, gate_hops=hops, batch_norm=True, **DROPPING)
        method.loss_terms(one_graph, step())
        found = method.band_losses(one_graph, step().generator)
        assert list(found) == ["low", "high"]
        assert_close(torch.stack(list(found.values())), seen[0], rtol=0, atol=0)


class TestGradients:
    def test_the_target_is_detached(self, one_graph):
        """The policy term reaches the encoder through what the gate reads, and in no other way."""
        method = make(one_graph)
        policy = method.loss_terms(one_graph, step())["policy"]
        encoder = list(method.encoder.parameters())
        through_gate = torch.autograd.grad(policy, encoder, allow_unused=True)
        assert any(gradient is not None and bool(gradient.any()) for gradient in through_gate)
        cut = make(one_graph, gate_gradient=False)
        policy = cut.loss_terms(one_graph, step())["policy"]
        found = torch.autograd.grad(policy, list(cut.encoder.parameters()), allow_unused=True)
        assert all(gradient is None for gradient in found)

    def test_channel_terms_do_not_reach_the_gate(self, one_graph):
        method = make(one_graph)
        channels = method.loss_terms(one_graph, step())["channels"]
        found = torch.autograd.grad(channels, list(method.gate.parameters()), allow_unused=True)
        assert all(gradient is None for gradient in found)


class TestTerms:
    def test_names_and_weights(self, one_graph):
        terms = make(one_graph).loss_terms(one_graph, step())
        assert list(terms) == ["contrast", "channels", "policy"]
        doubled = make(
            one_graph,
            channel_weight=2 * BASE["channel_weight"],
            policy_weight=2 * BASE["policy_weight"],
        ).loss_terms(one_graph, step())
        assert_close(doubled["contrast"], terms["contrast"])
        assert_close(doubled["channels"], 2 * terms["channels"])
        assert_close(doubled["policy"], 2 * terms["policy"])

    def test_early_stopping_watches_contrast_and_policy(self, one_graph):
        method = make(one_graph)
        terms = method.loss_terms(one_graph, step())
        assert_close(method.watched(terms), terms["contrast"] + terms["policy"])
        without = make(one_graph, policy_weight=0.0)
        terms = without.loss_terms(one_graph, step())
        assert list(terms) == ["contrast", "channels"]
        assert_close(without.watched(terms), terms["contrast"])

    def test_global_fusion_learns_one_number_and_has_no_policy_term(self, one_graph):
        method = make(one_graph, fusion="global")
        assert sum(parameter.numel() for parameter in method.gate.parameters()) == 1
        terms = method.loss_terms(one_graph, step())
        assert "policy" not in terms
        (gradient,) = torch.autograd.grad(terms["contrast"], list(method.gate.parameters()))
        assert bool(gradient.any())
        policy = method.output(one_graph).gate
        assert_close(policy, policy[:1].expand_as(policy))

    def test_half_fusion_learns_nothing_and_has_no_policy_term(self, one_graph):
        method = make(one_graph, fusion="half")
        assert list(method.gate.parameters()) == []
        assert "policy" not in method.loss_terms(one_graph, step())
        views = method.encoder(method.ready(one_graph).signal)
        assert_close(method.embed(one_graph), views.mean(0))

    @pytest.mark.parametrize("kind", [LowBandOnly, HighBandOnly])
    def test_a_single_band_has_no_policy(self, one_graph, kind):
        method = make(one_graph, kind)
        assert list(method.loss_terms(one_graph, step())) == ["contrast"]
        assert method.output(one_graph).gate is None
        assert list(method.warnings(method.output(one_graph))) == []

    def test_negatives_are_drawn_by_themselves_on_large_graphs(self, one_graph, monkeypatch):
        drawn = make(one_graph, negatives=5).loss_terms(one_graph, step())
        monkeypatch.setitem(EXACT_UP_TO, "cpu", one_graph.num_nodes - 1)
        monkeypatch.setitem(DRAWN_BEYOND, "cpu", 5)
        assert_close(make(one_graph).loss_terms(one_graph, step()), drawn, rtol=0, atol=0)
        assert "5 drawn negatives" in " ".join(make(one_graph).outlook(one_graph))
        monkeypatch.setitem(EXACT_UP_TO, "cpu", one_graph.num_nodes)
        exact = make(one_graph).loss_terms(one_graph, step())
        assert not torch.equal(exact["contrast"], drawn["contrast"])

    def test_sampling_every_node_is_exact(self, one_graph):
        exact = make(one_graph).loss_terms(one_graph, step())
        sampled = make(one_graph, negatives=one_graph.num_nodes).loss_terms(one_graph, step())
        assert_close(sampled, exact, rtol=0, atol=0)
        few = make(one_graph, negatives=5).loss_terms(one_graph, step())
        assert not torch.equal(few["contrast"], exact["contrast"])

    def test_the_true_largest_eigenvalue_is_an_option(self, one_graph):
        two, true = (
            make(one_graph, lambda_max=name).loss_terms(one_graph, step())
            for name in ("two", "power-iteration")
        )
        assert not torch.equal(two["contrast"], true["contrast"])


class TestSkip:
    def test_stands_beside_the_bands_with_its_weight(self, one_graph):
        without = make(one_graph, readout="weighted")
        method = make(one_graph, readout="weighted", skip_weight=0.5)
        method.calibrate(one_graph)
        output = method.eval().output(one_graph)
        assert output.embedding.shape == (24, 2 * 8 + 4)
        assert output.uncentred.shape == (24, 2 * 8)
        assert_close(output.embedding[:, :16], without.eval().output(one_graph).embedding)
        assert_close(
            output.embedding[:, 16:].norm(dim=1), torch.full((24,), 0.5, dtype=torch.float64)
        )

    def test_is_not_trained(self, one_graph):
        method = make(one_graph, skip_weight=1.0)
        assert not any(name.startswith("skip.") for name, _ in method.named_parameters())


class TestPolicy:
    def test_rows_sum_to_one_and_blend_the_embedding(self, one_graph):
        method = make(one_graph).eval()
        weights = method.output(one_graph).gate
        assert_close(weights.sum(1), torch.ones(one_graph.num_nodes, dtype=torch.float64))
        views = method.encoder(method.ready(one_graph).signal)
        assert_close(method.embed(one_graph), fuse(views, weights))

    @pytest.mark.parametrize("batch_norm", [True, False])
    def test_bands_are_centred_by_the_training_graph_before_they_are_weighted(
        self, one_graph, batch_norm
    ):
        method = make(one_graph, readout="weighted", centred=True, batch_norm=batch_norm)
        method.eval().calibrate(one_graph)
        embedding, output = method.encode(one_graph), method.output(one_graph)
        bands, weights = embedding.bands, embedding.weights
        low, high = (band - band.mean(0) for band in bands)
        expected = torch.cat([weights[:, :1] * low, weights[:, 1:] * high], dim=1)
        assert_close(method.embed(one_graph), expected)
        assert_close(output.embedding, expected)
        assert_close(output.gate, weights)
        assert_close(method.centred(embedding).bands, torch.stack([low, high]))
        bare = torch.cat([weights[:, :1] * bands[0], weights[:, 1:] * bands[1]], dim=1)
        assert_close(output.uncentred, bare)

    def test_other_graphs_are_centred_by_the_training_graph_too(self, one_graph):
        method = make(one_graph, readout="concatenated", centred=True).eval()
        method.calibrate(one_graph)
        other = random_graph(num_features=13, seed=4)
        output = method.output(other)
        shift = (output.uncentred - output.embedding).mean(0)
        assert_close(shift, method.output(one_graph).uncentred.mean(0))

    def test_centring_is_no_part_of_training(self, one_graph):
        with_, without = (make(one_graph, centred=way) for way in (True, False))
        terms, others = (method.loss_terms(one_graph, step()) for method in (with_, without))
        assert_close(terms, others, rtol=0, atol=0)

    @pytest.mark.parametrize("centred", [True, False])
    def test_unit_rows_leave_the_gate_alone_to_say_how_long_a_band_is(self, one_graph, centred):
        method = make(one_graph, readout="weighted", centred=centred, unit_rows=True).eval()
        method.calibrate(one_graph)
        bands, weights = method.encode(one_graph).bands, method.output(one_graph).gate
        if centred:
            bands = bands - bands.mean(1, keepdim=True)
        low, high = (band / band.norm(dim=1, keepdim=True) for band in bands)
        expected = torch.cat([weights[:, :1] * low, weights[:, 1:] * high], dim=1)
        assert_close(method.embed(one_graph), expected)
        lengths = method.embed(one_graph).unflatten(1, (2, -1)).norm(dim=2)
        assert_close(lengths, weights)

    def test_a_band_without_length_stays_zero_among_unit_rows(self):
        graph = Graph.build(torch.zeros(6, 3), torch.tensor([[0, 1], [1, 2]]))
        method = make(graph, centred=True, unit_rows=True).eval()
        method.calibrate(graph)
        assert not bool(method.embed(graph).any())

    def test_a_collapsed_gate_is_warned_of(self, one_graph):
        method = make(one_graph).eval()
        assert method.output(one_graph).gate[:, 0].std().item() > 1e-3
        assert list(method.warnings(method.output(one_graph))) == []
        with torch.no_grad():
            method.gate.network[-1].weight.zero_()
            method.gate.network[-1].bias.fill_(1.0)
        (warning,) = method.warnings(method.output(one_graph))
        assert "gate collapsed: the gate weight of the low band is 0.731 at every node" in warning

    def test_monitors_report_the_gate_of_the_first_view(self, one_graph):
        method = make(one_graph)
        assert method.monitors() == {}
        method.loss_terms(one_graph, step())
        low = method.output(one_graph).gate[:, 0].detach()
        monitors = method.monitors()
        assert_close(monitors["gate_mean"], low.mean())
        assert_close(monitors["gate_std"], low.std())

    def test_training_on_a_mixed_graph_does_not_collapse_the_gate(self):
        graph = mixed_graph(120, degree=8.0, signal=2.0, num_features=16, seed=0).graph
        method = make(
            graph,
            row_normalise=False,
            width=16,
            views="both",
            edge_drop=0.5,
            input_dropout=0.5,
            temperature=0.5,
            epochs=40,
            learning_rate=0.01,
        )
        train(method, graph, seed=0)
        assert float(method.output(graph).gate[:, 0].detach().std()) > 0.02


class TestContract:
    def test_every_parameter_is_in_one_group_and_filters_have_their_own(self, one_graph):
        method = make(
            one_graph,
            learning_rate=0.1,
            weight_decay=0.2,
            filter_learning_rate=0.3,
            filter_weight_decay=0.4,
        )
        filters, rest = method.parameter_groups()
        assert (filters.learning_rate, filters.weight_decay) == (0.3, 0.4)
        assert (rest.learning_rate, rest.weight_decay) == (0.1, 0.2)
        grouped = [id(p) for group in (filters, rest) for p in group.parameters]
        assert sorted(grouped) == sorted(id(p) for p in method.parameters())
        assert {id(p) for p in filters.parameters} == {
            id(p) for p in method.encoder.filters.parameters()
        }

    @pytest.mark.parametrize("layer_order", ["filter-first", "project-first"])
    def test_nodes_with_nothing_never_become_nan(self, layer_order):
        """Isolated nodes, nodes of zeros, and views that lose nearly every edge and column."""
        features = torch.zeros(8, 5)
        features[:3] = torch.rand(3, 5, generator=torch.Generator().manual_seed(0))
        graph = Graph.build(features, torch.tensor([[0, 1], [1, 2]]))
        kinds = itertools.product(("relu", "prelu"), (True, False), (None, 3))
        for activation, self_loops, negatives in kinds:
            method = make(
                graph,
                negatives=negatives,
                layer_order=layer_order,
                activation=activation,
                self_loops=self_loops,
                edge_drop=0.9,
                column_mask=0.9,
                input_dropout=0.9,
                dropout=0.9,
            )
            with torch.no_grad():
                method.encoder.linear.bias.zero_()
            for seed in range(2):
                terms = method.loss_terms(graph, step(seed))
                for name, gradient in gradients(terms, method).items():
                    assert torch.isfinite(gradient).all(), name
                    assert float(gradient.abs().max()) < 1e4, name

    def test_a_graph_without_edges_is_served(self):
        graph = Graph.build(torch.rand(6, 3), torch.empty(2, 0, dtype=torch.long))
        for changes in ({}, {"lambda_max": "power-iteration", "gate_hops": 2}):
            for self_loops in (True, False):
                method = make(graph, self_loops=self_loops, **changes)
                terms = method.loss_terms(graph, step())
                assert all(torch.isfinite(term) for term in terms.values())
