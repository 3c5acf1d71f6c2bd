"""InfoNCE with all negatives, within views too, with several positives, and with sampled negatives.

The three exact losses share one function, so that most tests run over all of them.
"""

import logging
import math

import pytest
import torch
from torch.testing import assert_close

from aspect.losses import blocked
from aspect.losses import info_nce as module
from aspect.losses.info_nce import (
    NodeLosses,
    Positives,
    info_nce,
    intra_view_info_nce,
    sampled_info_nce,
    several_positives_info_nce,
    several_positives_loss,
)
from reference import contrast, losses
from reference.graphs import random_graph


def pair(nodes=9, dim=5, seed=0, dtype=torch.float64):
    """Two noisy views of the same rows, so that positives are more similar than others."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(nodes, dim, dtype=dtype, generator=generator)
    return tuple(
        (shared + 0.5 * torch.randn(nodes, dim, dtype=dtype, generator=generator)).requires_grad_()
        for _ in range(2)
    )


def some_positives(nodes=9, count=2, seed=1):
    generator = torch.Generator().manual_seed(seed)
    chosen = [torch.randperm(nodes, generator=generator)[:count] for _ in range(nodes)]
    return Positives.from_neighbours(torch.stack(chosen), torch.float64)


def as_sets(positives):
    return [set(row.nonzero().flatten().tolist()) for row in positives.matrix.dense()]


def several(queries, keys, temperature, **options):
    positives = some_positives(len(queries))
    return several_positives_info_nce(queries, keys, temperature, positives, **options)


def plain_rows(queries, keys, temperature):
    unit = [torch.nn.functional.normalize(x, dim=1) for x in (queries, keys)]
    scores = unit[0] @ unit[1].t() / temperature
    return scores.logsumexp(1) - scores.diagonal()


def several_rows(queries, keys, temperature):
    return contrast.several_positives(
        queries, keys, temperature, as_sets(some_positives(len(queries)))
    )


EXACT = {"all": info_nce, "intra": intra_view_info_nce, "several": several}
SLOW_ROWS = {"all": plain_rows, "intra": contrast.intra_view, "several": several_rows}


@pytest.fixture(params=EXACT)
def name(request):
    return request.param


def slow(name, queries, keys, temperature):
    rows = SLOW_ROWS[name]
    return NodeLosses(rows(queries, keys, temperature), rows(keys, queries, temperature))


def weighted(node_losses, seed=9):
    """A random sum of all node losses, which separates rows from columns and nodes."""
    generator = torch.Generator().manual_seed(seed)
    dtype, nodes = node_losses.rows.dtype, len(node_losses.rows)
    by_row, by_column = torch.randn(2, nodes, dtype=torch.float64, generator=generator).to(dtype)
    return (by_row * node_losses.rows).sum() + (by_column * node_losses.columns).sum()


def values_and_gradients(node_losses, queries, keys):
    gradients = torch.autograd.grad(weighted(node_losses), (queries, keys))
    return node_losses.rows.detach(), node_losses.columns.detach(), *gradients


def computed(name, queries, keys, temperature=0.3, **options):
    return values_and_gradients(EXACT[name](queries, keys, temperature, **options), queries, keys)


class TestExact:
    @pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
    def test_both_directions_equal_the_loop_in_many_digits(self, temperature):
        queries, keys = pair()
        exact = info_nce(queries, keys, temperature)
        rows, columns = losses.info_nce(queries, keys, temperature)
        assert_close(exact.rows, torch.tensor(rows, dtype=torch.float64))
        assert_close(exact.columns, torch.tensor(columns, dtype=torch.float64))
        assert_close(exact.symmetric, (exact.rows + exact.columns) / 2)

    @pytest.mark.parametrize("block", [1, 4, 9, 100, None])
    def test_losses_and_gradients_equal_the_loop_in_any_block(self, name, block):
        views = pair()
        expected = values_and_gradients(slow(name, *views, 0.3), *views)
        assert_close(computed(name, *views, block=block), expected)

    def test_gradients_are_exact(self, name):
        def both(queries, keys):
            node_losses = EXACT[name](queries, keys, 0.4, block=4)
            return node_losses.rows, node_losses.columns

        assert torch.autograd.gradcheck(both, pair(nodes=5, dim=2))

    @pytest.mark.parametrize("block", [5, 17])
    def test_kept_and_recomputed_blocks_are_identical(self, name, block):
        views = pair(nodes=17)
        kept = computed(name, *views, block=block, kept_bytes=10**9)
        recomputed = computed(name, *views, block=block, kept_bytes=0)
        assert_close(kept, recomputed, rtol=0, atol=0)

    def test_a_second_backward_pass_gives_the_same(self, name):
        views = pair()
        loss = EXACT[name](*views, 0.3).symmetric.mean()
        first = torch.autograd.grad(loss, views, retain_graph=True)
        assert_close(torch.autograd.grad(loss, views), first, rtol=0, atol=0)

    def test_keys_without_a_gradient_leave_that_of_the_queries(self):
        queries, keys = pair()
        (alone,) = torch.autograd.grad(info_nce(queries, keys.detach(), 0.3).rows.sum(), queries)
        (both,) = torch.autograd.grad(info_nce(queries, keys, 0.3).rows.sum(), queries)
        assert_close(alone, both)

    @pytest.mark.parametrize("temperature", [0.2, 1e9])
    @pytest.mark.parametrize(("name", "count"), [("all", 8), ("intra", 15)])
    def test_equal_rows_cannot_be_told_apart(self, name, count, temperature):
        same = torch.ones(8, 3, dtype=torch.float64)
        node_losses = EXACT[name](same, same, temperature).rows
        assert_close(node_losses, torch.full((8,), math.log(count), dtype=torch.float64))

    def test_the_length_of_rows_does_not_matter_and_gets_no_gradient(self, name):
        queries, keys = pair()
        lengths = torch.linspace(1e-6, 1e6, len(queries), dtype=torch.float64).unsqueeze(1)
        expected = EXACT[name](queries, keys, 0.3)
        assert_close(EXACT[name](lengths * queries, keys, 0.3).rows, expected.rows)
        (gradient,) = torch.autograd.grad(expected.symmetric.sum(), queries)
        along = (gradient * queries).sum(1)
        assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("zero", [(0,), (1,), (0, 1)], ids=["queries", "keys", "both"])
    def test_rows_of_zeros_are_served_and_get_no_gradient(self, name, zero):
        views = [x.detach().clone() for x in pair()]
        for number in zero:
            views[number][2] = 0
        for view in views:
            view.requires_grad_()
        rows, columns, *gradients = computed(name, *views)
        assert torch.isfinite(torch.cat([rows, columns])).all()
        if name != "several" and 0 in zero:
            assert rows[2].item() == pytest.approx(math.log(9 if name == "all" else 17))
        for number, gradient in enumerate(gradients):
            assert torch.isfinite(gradient).all()
            assert bool(gradient[2].any()) == (number not in zero)

    def test_a_node_alone_has_no_loss_within_views(self):
        views = pair(nodes=1)
        node_losses = intra_view_info_nce(*views, 0.3).symmetric
        assert_close(node_losses, torch.zeros(1, dtype=torch.float64))
        for gradient in torch.autograd.grad(node_losses.sum(), views):
            assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)

    def test_second_derivatives_are_refused_rather_than_wrong(self, name):
        queries, keys = pair()
        loss = EXACT[name](queries, keys, 0.3).symmetric.mean()
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(loss, queries, create_graph=True)


class TestTemperature:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_has_room_for_low_temperatures(self, dtype):
        views = [view.detach().to(dtype) for view in pair()]
        everyone = {"negatives": 9, "generator": torch.Generator()}
        for loss, more in ((info_nce, {}), (intra_view_info_nce, {}), (sampled_info_nce, everyone)):
            found = loss(*views, 0.05, **more).symmetric
            expected = loss(*(view.double() for view in views), 0.05, **more).symmetric
            assert found.dtype == dtype
            assert_close(found.double(), expected, rtol=0.01, atol=0.01)

    @pytest.mark.parametrize("temperature", [0.003, 0.01, 0.03])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_low_ones_are_stable(self, temperature, dtype):
        queries, keys = (x.detach() for x in pair(nodes=7, dtype=dtype))
        # Opposite, equal and orthogonal pairs: similarities from one end of the range to the other.
        keys[0], keys[1] = -queries[0], queries[1]
        queries[2], keys[2] = torch.eye(5, dtype=dtype)[0], torch.eye(5, dtype=dtype)[1]
        queries.requires_grad_(), keys.requires_grad_()
        exact = info_nce(queries, keys, temperature)
        rows, columns = losses.info_nce(queries, keys, temperature)
        tolerance = {"rtol": 1e-5, "atol": 2e-5} if dtype == torch.float32 else {}
        assert_close(exact.rows, torch.tensor(rows, dtype=dtype), **tolerance)
        assert_close(exact.columns, torch.tensor(columns, dtype=dtype), **tolerance)
        for gradient in torch.autograd.grad(exact.symmetric.mean(), (queries, keys)):
            assert torch.isfinite(gradient).all()
            assert gradient.dtype == dtype

    @pytest.mark.parametrize("temperature", [0.01, 0.025])
    def test_float32_follows_float64(self, name, temperature):
        views = pair(nodes=30, dim=8)
        exact = computed(name, *views, temperature=temperature)
        narrow = (x.detach().float().requires_grad_() for x in views)
        for one, other in zip(computed(name, *narrow, temperature=temperature), exact, strict=True):
            assert one.dtype == torch.float32
            assert_close(one.double(), other, rtol=1e-4, atol=1e-4 * other.abs().max().item())

    def test_what_outweighs_all_else_is_left_out_exactly(self):
        # exp(1 / 0.026) is 5e16: subtracting it from the sum would leave nothing but rounding.
        basis = torch.eye(5)
        alone = Positives.from_neighbours(torch.empty(5, 0, dtype=torch.long))
        rows = several_positives_info_nce(basis, basis, 0.026, alone).rows
        assert_close(rows, torch.full((5,), math.log(4) - 1 / 0.026))
        # The views are opposite, so that the sum within a view is all that counts.
        rows = intra_view_info_nce(basis, -basis, 0.026).rows
        assert_close(rows, torch.full((5,), math.log(4 + 4 + math.exp(-1 / 0.026)) + 1 / 0.026))

    @pytest.mark.parametrize("temperature", [0.0, -1.0, 0.001, math.nan])
    def test_too_low_ones_are_refused(self, name, temperature):
        with pytest.raises(ValueError, match=r"Temperature of InfoNCE must be at least 0\.0029"):
            EXACT[name](*pair(), temperature)
        with pytest.raises(ValueError, match="Temperature of InfoNCE"):
            sampled_info_nce(*pair(), temperature, 3, torch.Generator())


class TestOutOfMemory:
    @pytest.fixture(autouse=True)
    def warnings(self, caplog):
        blocked._warn_of_smaller_blocks.cache_clear()
        with caplog.at_level(logging.WARNING, logger=blocked.__name__):
            yield caplog
        blocked._warn_of_smaller_blocks.cache_clear()

    @staticmethod
    def messages(*sizes):
        return [
            f"InfoNCE ran out of memory and goes on in blocks of {size} rows." for size in sizes
        ]

    @staticmethod
    def limit(monkeypatch, rows):
        """Blocks of more rows than this find no memory."""
        honest = module.exponential_blocks

        def limited(queries, keys, sharpness, block):
            if block > rows:
                raise torch.OutOfMemoryError("tried to allocate too much")
            return honest(queries, keys, sharpness, block)

        monkeypatch.setattr(module, "exponential_blocks", limited)

    @pytest.mark.parametrize("kept_bytes", [0, 10**9])
    def test_blocks_are_halved_until_they_fit(self, monkeypatch, warnings, name, kept_bytes):
        views = pair(nodes=40)
        expected = computed(name, *views)
        self.limit(monkeypatch, 5)
        for _ in range(2):  # a later step does not warn again
            assert_close(computed(name, *views, block=20, kept_bytes=kept_bytes), expected)
        assert warnings.messages == self.messages(10, 5)

    @pytest.mark.parametrize("kept_bytes", [0, 10**9])
    def test_memory_may_run_out_in_the_backward_pass_alone(
        self, monkeypatch, warnings, name, kept_bytes
    ):
        views = pair(nodes=40)
        expected = computed(name, *views, block=16)
        honest, failures = module._gradients, iter([True, True])

        def limited(*arguments):
            if next(failures, False):
                raise torch.OutOfMemoryError("tried to allocate too much")
            return honest(*arguments)

        monkeypatch.setattr(module, "_gradients", limited)
        assert_close(computed(name, *views, block=16, kept_bytes=kept_bytes), expected)
        assert warnings.messages == self.messages(8, 4)

    def test_the_floor_says_how_much_a_row_takes(self, monkeypatch):
        self.limit(monkeypatch, 0)
        with pytest.raises(torch.OutOfMemoryError, match=r"InfoNCE .* one row .* \(320 bytes\)"):
            info_nce(*pair(nodes=40), 0.3, block=4)

    def test_no_block_is_larger_than_the_matrix(self, monkeypatch, warnings):
        self.limit(monkeypatch, 3)
        info_nce(*pair(nodes=8), 0.3)
        assert warnings.messages == self.messages(4, 2)


class TestPositives:
    def test_a_node_is_its_own_positive_once(self):
        positives = Positives.from_neighbours(torch.tensor([[1, 0], [1, 1], [0, 1]]))
        assert as_sets(positives) == [{0, 1}, {1}, {0, 1, 2}]
        assert set(positives.matrix.values.tolist()) == {1.0}

    def test_those_of_a_graph_are_its_neighbours(self):
        graph = random_graph(isolated=1)
        expected = torch.eye(graph.num_nodes, dtype=torch.float64)
        expected[tuple(graph.edge_index)] = 1
        assert_close(Positives.from_graph(graph).matrix.dense(), expected)

    def test_among_some_nodes_they_are_the_dense_matrix_cut_out(self):
        positives, nodes = some_positives(count=3), torch.tensor([7, 2, 8, 0])
        expected = positives.matrix.dense()[nodes][:, nodes]
        assert_close(positives.among(nodes).matrix.dense(), expected)

    def test_a_node_without_negatives_is_only_drawn_to_its_positives(self):
        views = pair(nodes=3)
        positives = Positives.from_neighbours(torch.tensor([[1, 2], [1, 1], [2, 2]]), torch.float64)
        node_losses = several_positives_info_nce(*views, 0.3, positives)
        rows = contrast.several_positives(*views, 0.3, as_sets(positives))
        columns = contrast.several_positives(*views[::-1], 0.3, as_sets(positives))
        expected = values_and_gradients(NodeLosses(rows, columns), *views)
        assert_close(values_and_gradients(node_losses, *views), expected)

    def test_one_batch_of_all_is_no_batch_in_whatever_order(self):
        views, positives = pair(), some_positives()
        everyone = torch.randperm(9, generator=torch.Generator().manual_seed(2))
        whole = several_positives_loss(*views, 0.3, positives)
        assert_close(whole, several(*views, 0.3).symmetric.mean())
        assert_close(several_positives_loss(*views, 0.3, positives, [everyone]), whole)

    def test_nodes_meet_those_of_their_batch_alone(self):
        (queries, keys), positives = pair(nodes=11), some_positives(11, count=3)
        batches = [torch.tensor([4, 0, 9, 2, 7, 10]), torch.tensor([1, 3, 5, 6, 8])]
        total = 0.0
        for batch in batches:
            sets = as_sets(positives.among(batch))
            for one, other in ((queries, keys), (keys, queries)):
                rows = contrast.several_positives(one[batch], other[batch], 0.3, sets)
                total = total + rows.sum()
        loss = several_positives_loss(queries, keys, 0.3, positives, batches)
        assert_close(loss, total / 2 / 11)
        assert_close(
            torch.autograd.grad(loss, (queries, keys)),
            torch.autograd.grad(total / 2 / 11, (queries, keys)),
        )


class TestSampled:
    def test_rows_of_zeros_get_no_gradient(self):
        queries, keys = (x.detach().clone() for x in pair())
        queries[2], keys[4] = 0, 0
        queries.requires_grad_(), keys.requires_grad_()
        sampled = sampled_info_nce(queries, keys, 0.3, 3, torch.Generator().manual_seed(0))
        to_queries, to_keys = torch.autograd.grad(sampled.symmetric.sum(), (queries, keys))
        assert not bool(to_queries[2].any())
        assert not bool(to_keys[4].any())
        assert float(max(to_queries.abs().max(), to_keys.abs().max())) < 100

    def test_second_derivatives_are_refused_rather_than_wrong(self):
        queries, keys = pair()
        loss = sampled_info_nce(queries, keys, 0.3, 3, torch.Generator()).symmetric.mean()
        with pytest.raises(RuntimeError, match="InfoNCE has no second derivative here"):
            torch.autograd.grad(loss, queries, create_graph=True)

    @pytest.mark.parametrize("kept_bytes", [0, 2**20])
    @pytest.mark.parametrize("block", [1, 4, 25])
    def test_blocks_give_the_plain_form_and_its_gradient(self, monkeypatch, block, kept_bytes):
        monkeypatch.setattr(module, "rows_per_block", lambda *_: block)
        monkeypatch.setattr(module, "KEPT_BYTES", kept_bytes)
        views, seed = pair(nodes=25), torch.Generator().manual_seed(3).get_state()
        generator = torch.Generator()
        generator.set_state(seed)
        drawn = torch.randperm(25, generator=generator)[:7]
        generator.set_state(seed)

        def plain(one, other):
            cosines = torch.nn.functional.normalize(one) @ torch.nn.functional.normalize(other).t()
            scores = cosines / 0.3
            others = [[j for j in drawn.tolist() if j != i] for i in range(25)]
            sums = [
                torch.log(
                    scores[i, i].exp() + 24 / len(others[i]) * scores[i, others[i]].exp().sum()
                )
                for i in range(25)
            ]
            return torch.stack(sums) - scores.diagonal()

        found = sampled_info_nce(*views, 0.3, 7, generator)
        expected = NodeLosses(plain(*views), plain(*views[::-1]))
        assert_close(values_and_gradients(found, *views), values_and_gradients(expected, *views))

    def test_all_nodes_drawn_is_the_exact_loss(self):
        views = pair(nodes=25)
        sampled = sampled_info_nce(*views, 0.3, 25, torch.Generator())
        assert_close(values_and_gradients(sampled, *views), computed("all", *views))

    def test_estimate_is_low_and_rises_to_the_exact_loss(self):
        queries, keys = (x.detach() for x in pair(nodes=200, dim=8))
        exact = float(info_nce(queries, keys, 0.2).symmetric.mean())
        generator = torch.Generator().manual_seed(0)
        errors = []
        for negatives in (4, 12, 36, 108):
            draws = [
                sampled_info_nce(queries, keys, 0.2, negatives, generator).symmetric.mean()
                for _ in range(60)
            ]
            errors.append(exact - float(torch.stack(draws).mean()))
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] > -0.01
        assert errors[0] > 0.1 > 5 * abs(errors[-1])

    def test_the_sum_inside_the_logarithm_is_unbiased(self):
        queries, keys = (x.detach() for x in pair(nodes=60))
        exact = info_nce(queries, keys, 0.5).rows.exp()
        generator = torch.Generator().manual_seed(0)
        draws = torch.stack(
            [sampled_info_nce(queries, keys, 0.5, 20, generator).rows.exp() for _ in range(400)]
        )
        error = (draws.mean(0) - exact) / (draws.std(0) / 400**0.5)
        assert float(error.abs().max()) < 5
