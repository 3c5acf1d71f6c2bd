import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from aspect.data import sparse
from aspect.data.sparse import SparseMatrix, run_numbers


@pytest.fixture
def dense():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(6, 9, dtype=torch.float64, generator=generator)
    matrix[torch.rand(6, 9, generator=generator) < 0.7] = 0
    matrix[2] = 0  # a row without entries
    matrix[:, 4] = 0  # and a column
    return matrix


def test_entries_may_come_in_any_order(dense):
    assert_close(SparseMatrix.from_dense(dense).dense(), dense, rtol=0, atol=0)
    rows, columns = dense.nonzero(as_tuple=True)
    mixed = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    values = dense[rows, columns]
    matrix = SparseMatrix.from_entries(rows[mixed], columns[mixed], values[mixed], (6, 9))
    assert_close(matrix.dense(), dense, rtol=0, atol=0)
    assert matrix.pattern.rows.tolist() == rows.tolist()


def test_the_transposed_pattern_is_found_once_whatever_the_values(dense):
    matrix = SparseMatrix.from_dense(dense)
    other = matrix.with_values(matrix.values * 3)
    assert other.transposed.pattern is matrix.transposed.pattern
    assert other.transposed.shape == (9, 6)
    assert_close(other.transposed.dense(), 3 * dense.t())
    assert_close(matrix.transposed.transposed.dense(), dense, rtol=0, atol=0)


@pytest.mark.parametrize("width", [1, 5])
def test_product_and_gradients_equal_the_dense_ones(dense, width):
    before = dense.clone()
    x = torch.randn(9, width, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(6, width, dtype=torch.float64)
    matrix = SparseMatrix.from_dense(dense)
    product = matrix @ x
    assert_close(product, dense @ x)
    (gradient,) = torch.autograd.grad(product, x, upstream)
    assert_close(gradient, dense.t() @ upstream)
    values = matrix.values.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda v, y: matrix.with_values(v) @ y, (values, x))
    assert_close(dense, before, rtol=0, atol=0)


def test_product_with_a_transposed_view_and_its_gradient(dense):
    weight = torch.randn(5, 9, dtype=torch.float64, requires_grad=True)
    product = SparseMatrix.from_dense(dense) @ weight.t()
    product.square().sum().backward()
    assert_close(product, dense @ weight.t())
    assert_close(weight.grad, 2 * (dense.t() @ product.detach()).t())


def test_matrices_without_entries_and_with_zeros(dense):
    empty = SparseMatrix.from_dense(torch.zeros(3, 4))
    assert_close(empty @ torch.ones(4, 2), torch.zeros(3, 2))
    assert_close(empty.transposed @ torch.ones(3, 2), torch.zeros(4, 2))
    matrix = SparseMatrix.from_dense(dense)
    values = matrix.values.clone()
    values[::2] = 0
    thinned = matrix.with_values(values)
    assert thinned.pattern is matrix.pattern
    x = torch.randn(9, 2, dtype=torch.float64)
    assert_close(thinned @ x, thinned.dense() @ x)


def test_conversion_of_the_type_keeps_the_pattern(dense):
    matrix = SparseMatrix.from_dense(dense)
    single = matrix.to(torch.float32)
    assert single.dtype == torch.float32
    assert single.pattern is matrix.pattern
    assert matrix.dtype == torch.float64
    assert_close(matrix.to("cpu").dense(), dense)


@pytest.mark.parametrize("values", [[], [3], [1, 1, 4, 4, 4, 9], [2, 2]])
def test_equal_numbers_share_a_number_as_those_of_unique_do(values):
    ordered = torch.tensor(values, dtype=torch.long)
    expected = torch.unique(ordered, return_inverse=True)[1]
    assert torch.equal(run_numbers(ordered), expected)


def test_torch_says_nothing_of_sparse_tensors_in_a_process_of_its_own():
    code = (
        "import torch, aspect.data.sparse\n"
        "pointers, values = torch.tensor([0, 1, 2]), torch.ones(2)\n"
        "torch.sparse_csr_tensor(pointers, torch.tensor([0, 1]), values, (2, 2)) @ torch.eye(2)\n"
    )
    command = [sys.executable, "-W", "default", "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "Sparse" not in told


def test_zeros_may_stand_behind_the_last_column(dense):
    wide = SparseMatrix.from_dense(dense).dense(width=16)
    assert_close(wide[:, :9], dense, rtol=0, atol=0)
    assert wide.shape == (6, 16)
    assert not wide[:, 9:].any()


@pytest.mark.gpu
def test_a_well_filled_matrix_is_multiplied_as_a_whole_in_tf32(dense, monkeypatch):
    right = torch.randn(9, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    exact = dense @ right, dense.t() @ (dense @ right)
    matrix = SparseMatrix.from_dense(dense.float().cuda())
    torch.set_float32_matmul_precision("high")
    try:
        for ratio in (0, 100):
            monkeypatch.setattr(sparse, "DENSE_RATIO", ratio)
            assert matrix.pattern.is_well_filled == (ratio > 0)
            factor = right.float().cuda().requires_grad_()
            product = matrix @ factor
            (gradient,) = torch.autograd.grad(product.square().sum() / 2, factor)
            for found, expected in zip((product, gradient), exact, strict=True):
                assert float((found.cpu() - expected).norm() / expected.norm()) < 2e-3
    finally:
        torch.set_float32_matmul_precision("highest")
