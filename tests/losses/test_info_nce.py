import logging
import math
import os
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from aspect.losses import blocked
from aspect.losses import info_nce as module
from aspect.losses.info_nce import info_nce, sampled_info_nce
from reference import losses


def pair(nodes=9, dim=5, seed=0, dtype=torch.float64):
    """Two noisy views of the same rows, so that positives are more alike than others."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(nodes, dim, dtype=dtype, generator=generator)
    return tuple(
        (shared + 0.5 * torch.randn(nodes, dim, dtype=dtype, generator=generator)).requires_grad_()
        for _ in range(2)
    )


def node_weights(nodes, seed=9):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, nodes, dtype=torch.float64, generator=generator)


def loss_and_gradients(queries, keys, temperature=0.3, **options):
    """A randomly weighted sum of all node losses, which separates rows from columns and nodes."""
    found = info_nce(queries, keys, temperature, **options)
    by_row, by_column = node_weights(len(queries)).to(found.rows.dtype)
    total = (by_row * found.rows).sum() + (by_column * found.columns).sum()
    return found.rows, found.columns, *torch.autograd.grad(total, (queries, keys))


@pytest.fixture
def warnings_of_blocks(caplog):
    blocked._warn_of_smaller_blocks.cache_clear()
    with caplog.at_level(logging.WARNING, logger=blocked.__name__):
        yield caplog
    blocked._warn_of_smaller_blocks.cache_clear()


class TestExact:
    @pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
    def test_both_directions_equal_the_loop(self, temperature):
        queries, keys = pair()
        found = info_nce(queries, keys, temperature)
        rows, columns = losses.info_nce(queries, keys, temperature)
        assert_close(found.rows, torch.tensor(rows, dtype=torch.float64))
        assert_close(found.columns, torch.tensor(columns, dtype=torch.float64))
        assert_close(found.symmetric, (found.rows + found.columns) / 2)

    @pytest.mark.parametrize("direction", ["rows", "columns", "symmetric"])
    @pytest.mark.parametrize("kept_bytes", [0, 10**9])
    def test_gradients_are_exact(self, direction, kept_bytes):
        def node_losses(queries, keys):
            return getattr(info_nce(queries, keys, 0.4, block=4, kept_bytes=kept_bytes), direction)

        assert torch.autograd.gradcheck(node_losses, pair())

    def test_gradients_equal_those_of_a_plain_softmax(self):
        queries, keys = pair(nodes=23)
        by_row, by_column = node_weights(23)
        unit = [torch.nn.functional.normalize(x, dim=1) for x in (queries, keys)]
        scores = unit[0] @ unit[1].t() / 0.3
        plain = (by_row * (scores.logsumexp(1) - scores.diagonal())).sum()
        plain = plain + (by_column * (scores.logsumexp(0) - scores.diagonal())).sum()
        expected = torch.autograd.grad(plain, (queries, keys))
        assert_close(loss_and_gradients(queries, keys)[2:], expected)

    @pytest.mark.parametrize("block", [1, 2, 3, 8, 16, 17, 100])
    def test_any_block_gives_the_same(self, block):
        queries, keys = pair(nodes=17)
        whole = loss_and_gradients(queries, keys, block=17)
        assert_close(loss_and_gradients(queries, keys, block=block), whole)

    @pytest.mark.parametrize("block", [1, 5, 17])
    def test_kept_and_recomputed_blocks_are_identical(self, block):
        queries, keys = pair(nodes=17)
        kept = loss_and_gradients(queries, keys, block=block, kept_bytes=10**9)
        recomputed = loss_and_gradients(queries, keys, block=block, kept_bytes=0)
        assert_close(kept, recomputed, rtol=0, atol=0)

    def test_a_second_backward_pass_gives_the_same(self):
        queries, keys = pair()
        loss = info_nce(queries, keys, 0.3).symmetric.mean()
        first = torch.autograd.grad(loss, (queries, keys), retain_graph=True)
        assert_close(torch.autograd.grad(loss, (queries, keys)), first, rtol=0, atol=0)

    def test_one_direction_alone_needs_no_gradient_of_the_other(self):
        queries, keys = pair()
        (alone,) = torch.autograd.grad(info_nce(queries, keys, 0.3).rows.sum(), queries)
        (other,) = torch.autograd.grad(info_nce(keys, queries, 0.3).columns.sum(), queries)
        assert_close(alone, other)

    def test_swapping_the_views_swaps_the_directions(self):
        queries, keys = pair()
        there, back = info_nce(queries, keys, 0.3), info_nce(keys, queries, 0.3)
        assert_close(there.rows, back.columns)
        assert_close(there.columns, back.rows)

    def test_equal_rows_cannot_be_told_apart(self):
        same = torch.ones(8, 3, dtype=torch.float64)
        assert_close(info_nce(same, same, 0.2).rows, torch.full((8,), math.log(8)).double())

    def test_orthogonal_rows_have_a_closed_form(self):
        basis = torch.eye(6, dtype=torch.float64)
        expected = math.log(math.exp(1 / 0.25) + 5) - 1 / 0.25
        assert_close(info_nce(basis, basis, 0.25).rows, torch.full((6,), expected).double())

    def test_aligned_views_beat_random_ones(self):
        queries, keys = pair(nodes=40)
        mixed = keys[torch.randperm(40, generator=torch.Generator().manual_seed(1))]
        aligned = info_nce(queries, keys, 0.3).symmetric.mean()
        assert aligned < info_nce(queries, mixed, 0.3).symmetric.mean() - 1

    def test_the_length_of_rows_does_not_matter_and_gets_no_gradient(self):
        queries, keys = pair()
        lengths = torch.linspace(1e-6, 1e6, len(queries), dtype=torch.float64).unsqueeze(1)
        expected = info_nce(queries, keys, 0.3)
        assert_close(info_nce(lengths * queries, keys, 0.3).rows, expected.rows)
        (gradient,) = torch.autograd.grad(expected.symmetric.sum(), queries)
        along = (gradient * queries).sum(1)
        assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("temperature", [0.003, 0.05, 1.0])
    def test_gradient_is_at_most_two_over_the_temperature(self, temperature):
        queries, keys = (torch.nn.functional.normalize(x.detach(), dim=1) for x in pair(nodes=30))
        queries.requires_grad_()
        rows = info_nce(queries, keys, temperature).rows
        lengths = torch.autograd.grad(rows.sum(), queries)[0].norm(dim=1)
        assert bool((lengths <= 2 / temperature).all())
        assert float(lengths.max()) > 0

    @pytest.mark.parametrize("zero", ["queries", "keys", "both"])
    def test_rows_of_zeros_are_served_and_get_no_gradient(self, zero):
        queries, keys = (x.detach().clone() for x in pair())
        for name, rows in (("queries", queries), ("keys", keys)):
            if zero in (name, "both"):
                rows[2] = 0
        queries.requires_grad_(), keys.requires_grad_()
        rows, columns, *gradients = loss_and_gradients(queries, keys)
        assert torch.isfinite(rows).all()
        assert torch.isfinite(columns).all()
        if zero != "keys":
            assert rows[2].item() == pytest.approx(math.log(9))
        for given, gradient in zip((queries, keys), gradients, strict=True):
            assert torch.isfinite(gradient).all()
            if not bool(given[2].any()):
                assert not bool(gradient[2].any())

    def test_all_rows_zero(self):
        zeros = torch.zeros(4, 3, requires_grad=True)
        found = info_nce(zeros, zeros, 0.5).symmetric
        assert_close(found, torch.full((4,), math.log(4)))
        assert_close(torch.autograd.grad(found.sum(), zeros)[0], torch.zeros(4, 3))

    @pytest.mark.parametrize("temperature", [0.003, 0.005, 0.01, 0.02, 0.025, 0.03])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_low_temperatures_are_stable(self, temperature, dtype):
        queries, keys = (x.detach() for x in pair(nodes=7, dtype=dtype))
        # Opposite, equal and orthogonal pairs: similarities from one end of the range to the other.
        keys[0], keys[1] = -queries[0], queries[1]
        queries[2], keys[2] = torch.eye(5, dtype=dtype)[0], torch.eye(5, dtype=dtype)[1]
        queries.requires_grad_(), keys.requires_grad_()
        found = info_nce(queries, keys, temperature)
        assert found.rows.dtype == dtype
        rows, columns = losses.info_nce(queries, keys, temperature)
        tolerance = {"rtol": 1e-5, "atol": 2e-5} if dtype == torch.float32 else {}
        assert_close(found.rows, torch.tensor(rows, dtype=dtype), **tolerance)
        assert_close(found.columns, torch.tensor(columns, dtype=dtype), **tolerance)
        for gradient in torch.autograd.grad(found.symmetric.mean(), (queries, keys)):
            assert torch.isfinite(gradient).all()
            assert gradient.dtype == dtype

    def test_float32_follows_float64_at_its_coldest(self):
        queries, keys = pair(nodes=50, dim=8)
        exact = loss_and_gradients(queries, keys, temperature=0.025)
        single = loss_and_gradients(
            *(x.detach().float().requires_grad_() for x in (queries, keys)), temperature=0.025
        )
        for one, other in zip(single, exact, strict=True):
            assert_close(one.double(), other, rtol=1e-4, atol=1e-4 * other.abs().max().item())

    @pytest.mark.parametrize("temperature", [0.0, -1.0, 0.001, math.nan])
    def test_temperatures_that_are_too_low_are_refused(self, temperature):
        with pytest.raises(ValueError, match=r"Temperature of InfoNCE must be at least 0\.0029"):
            info_nce(*pair(), temperature)
        with pytest.raises(ValueError, match="Temperature of InfoNCE"):
            sampled_info_nce(*pair(), temperature, 3, torch.Generator())

    def test_inputs_are_not_changed(self):
        queries, keys = pair()
        before = queries.detach().clone(), keys.detach().clone()
        loss_and_gradients(queries, keys)
        assert torch.equal(queries, before[0])
        assert torch.equal(keys, before[1])

    def test_second_derivatives_are_refused_rather_than_wrong(self):
        queries, keys = pair()
        loss = info_nce(queries, keys, 0.3).symmetric.mean()
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(loss, queries, create_graph=True)


MEMORY_SCRIPT = """
import re, sys, torch
from pathlib import Path
from aspect.losses.info_nce import info_nce

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

torch.set_num_threads(1)
nodes, block, kept_bytes = map(int, sys.argv[1:])

def run(nodes):
    queries, keys = (torch.randn(nodes, 16, requires_grad=True) for _ in range(2))
    info_nce(queries, keys, 0.5, block=block, kept_bytes=kept_bytes).symmetric.mean().backward()

run(2 * block)
before = peak()
run(nodes)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
class TestMemory:
    @staticmethod
    def growth(nodes, block, kept_bytes):
        command = [sys.executable, "-c", MEMORY_SCRIPT, str(nodes), str(block), str(kept_bytes)]
        answer = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            check=True,
            capture_output=True,
            text=True,
        )
        return int(answer.stdout)

    def test_the_peak_grows_with_nodes_times_block(self):
        nodes, block = 6000, 64
        matrix = 4 * nodes**2
        # Half a dozen blocks and [nodes, 16] tensors, and some slack for the allocator.
        allowed = 6 * 4 * nodes * block + 20 * 4 * nodes * 16 + 16 * 2**20
        assert allowed < matrix / 2
        assert self.growth(nodes, block, 0) < allowed
        # The measure sees a matrix where there is one.
        assert self.growth(nodes, block, 10**9) > matrix


class TestOutOfMemory:
    def limit(self, monkeypatch, rows):
        """Blocks of more rows than this find no memory."""
        honest = module.exponential_blocks

        def limited(queries, keys, sharpness, block):
            if block > rows:
                raise torch.OutOfMemoryError("tried to allocate too much")
            return honest(queries, keys, sharpness, block)

        monkeypatch.setattr(module, "exponential_blocks", limited)

    @pytest.mark.parametrize("kept_bytes", [0, 10**9])
    def test_blocks_are_halved_until_they_fit(self, monkeypatch, warnings_of_blocks, kept_bytes):
        queries, keys = pair(nodes=40)
        expected = loss_and_gradients(queries, keys)
        self.limit(monkeypatch, 5)
        found = loss_and_gradients(queries, keys, block=20, kept_bytes=kept_bytes)
        assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert warnings_of_blocks.messages == [
            "InfoNCE ran out of memory and goes on in blocks of 10 rows.",
            "InfoNCE ran out of memory and goes on in blocks of 5 rows.",
        ]

    def test_later_steps_do_not_warn_again(self, monkeypatch, warnings_of_blocks):
        self.limit(monkeypatch, 10)
        for seed in range(3):
            loss_and_gradients(*pair(nodes=40, seed=seed), block=20)
        assert len(warnings_of_blocks.messages) == 1

    @pytest.mark.parametrize("kept_bytes", [0, 10**9])
    def test_memory_may_run_out_in_the_backward_pass_alone(
        self, monkeypatch, warnings_of_blocks, kept_bytes
    ):
        queries, keys = pair(nodes=40)
        expected = loss_and_gradients(queries, keys, block=16)
        honest, failures = module._gradients, iter([True, True])

        def limited(blocks, *others):
            if next(failures, False):
                raise torch.OutOfMemoryError("tried to allocate too much")
            return honest(blocks, *others)

        monkeypatch.setattr(module, "_gradients", limited)
        found = loss_and_gradients(queries, keys, block=16, kept_bytes=kept_bytes)
        assert_close(found, expected)
        assert warnings_of_blocks.messages == [
            "InfoNCE ran out of memory and goes on in blocks of 8 rows.",
            "InfoNCE ran out of memory and goes on in blocks of 4 rows.",
        ]

    def test_the_floor_says_how_much_a_row_takes(self, monkeypatch, warnings_of_blocks):
        self.limit(monkeypatch, 0)
        with pytest.raises(torch.OutOfMemoryError, match=r"InfoNCE .* one row .* \(320 bytes\)"):
            info_nce(*pair(nodes=40), 0.3, block=4)
        assert len(warnings_of_blocks.messages) == 2

    def test_no_block_is_larger_than_the_matrix(self, monkeypatch, warnings_of_blocks):
        self.limit(monkeypatch, 3)
        info_nce(*pair(nodes=8), 0.3)
        assert warnings_of_blocks.messages == [
            "InfoNCE ran out of memory and goes on in blocks of 4 rows.",
            "InfoNCE ran out of memory and goes on in blocks of 2 rows.",
        ]


class TestSampled:
    def test_rows_of_zeros_get_no_gradient(self):
        queries, keys = (x.detach().clone() for x in pair())
        queries[2], keys[4] = 0, 0
        queries.requires_grad_(), keys.requires_grad_()
        found = sampled_info_nce(queries, keys, 0.3, 3, torch.Generator().manual_seed(0))
        to_queries, to_keys = torch.autograd.grad(found.symmetric.sum(), (queries, keys))
        assert not bool(to_queries[2].any())
        assert not bool(to_keys[4].any())
        assert float(max(to_queries.abs().max(), to_keys.abs().max())) < 100

    def test_all_nodes_drawn_is_the_exact_loss(self):
        queries, keys = pair(nodes=25)
        exact, drawn = (
            info_nce(queries, keys, 0.3),
            sampled_info_nce(queries, keys, 0.3, 25, torch.Generator()),
        )
        assert_close(drawn.rows, exact.rows)
        assert_close(drawn.columns, exact.columns)
        for one, other in zip(
            torch.autograd.grad(drawn.symmetric.sum(), (queries, keys)),
            torch.autograd.grad(exact.symmetric.sum(), (queries, keys)),
            strict=True,
        ):
            assert_close(one, other)

    def test_estimate_is_low_and_rises_to_the_exact_loss(self):
        queries, keys = (x.detach() for x in pair(nodes=200, dim=8))
        exact = float(info_nce(queries, keys, 0.2).symmetric.mean())
        generator = torch.Generator().manual_seed(0)
        means = []
        for negatives in (4, 12, 36, 108):
            draws = [
                sampled_info_nce(queries, keys, 0.2, negatives, generator).symmetric.mean()
                for _ in range(60)
            ]
            means.append(float(torch.stack(draws).mean()))
        errors = [exact - mean for mean in means]
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] > -0.01
        assert errors[0] > 0.1 > 5 * abs(errors[-1])

    def test_the_sum_inside_the_logarithm_is_unbiased(self):
        queries, keys = (x.detach() for x in pair(nodes=60))
        exact = info_nce(queries, keys, 0.5).rows.exp()
        generator = torch.Generator().manual_seed(0)
        draws = torch.stack(
            [sampled_info_nce(queries, keys, 0.5, 20, generator).rows.exp() for _ in range(1500)]
        )
        error = (draws.mean(0) - exact) / (draws.std(0) / 1500**0.5)
        assert float(error.abs().max()) < 5

    @pytest.mark.parametrize("negatives", [1, 2])
    def test_a_single_negative_is_enough_for_finite_numbers(self, negatives):
        queries, keys = pair()
        found = sampled_info_nce(queries, keys, 0.003, negatives, torch.Generator())
        assert torch.isfinite(found.symmetric).all()
        for gradient in torch.autograd.grad(found.symmetric.sum(), (queries, keys)):
            assert torch.isfinite(gradient).all()

    def test_the_generator_decides_the_sample(self):
        queries, keys = pair(nodes=50)
        first, again, other = (
            sampled_info_nce(queries, keys, 0.3, 5, torch.Generator().manual_seed(seed)).rows
            for seed in (1, 1, 2)
        )
        assert_close(first, again, rtol=0, atol=0)
        assert not torch.equal(first, other)
