import numpy as np
import pytest
from matrix.oracle import decoder, encoders

from taut.errors import UnsoundConfiguration
from taut.matrix import (
    BandedEncoder,
    BufferedEncoder,
    DenseEncoder,
    InverseToeplitzEncoder,
    ToeplitzEncoder,
    TreeEncoder,
    Workload,
    identity,
    inverse_square_root,
    lambda_cgd,
    square_root,
)

SIZES = [1, 2, 5, 8, 13]
KINDS = sorted(encoders(5))


@pytest.mark.parametrize("steps", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_stream_decodes_the_matrix(kind, steps):
    encoder = encoders(steps)[kind]
    product = decoder(encoder) @ encoder.matrix()
    np.testing.assert_allclose(product, np.eye(steps), atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_involve_no_input_after_their_release(kind):
    encoder = encoders(13)[kind]
    drawn, released = [0], []
    stream = encoder.stream()
    for step in range(13):
        before = drawn[0]

        def draw():
            drawn[0] += 1
            return np.zeros(1)

        stream.step(draw)
        released += [step] * (drawn[0] - before)
    assert len(released) == encoder.rows
    matrix = encoder.matrix()
    for row, step in enumerate(released):
        assert not matrix[row, step + 1 :].any()


@pytest.mark.parametrize("kind", KINDS)
def test_columns_norms_and_products_agree_with_the_matrix(kind):
    encoder = encoders(13)[kind]
    matrix = encoder.matrix()
    assert matrix.shape == (encoder.rows, 13)
    at = np.array([0, 3, 12])
    np.testing.assert_array_equal(encoder.columns(at), matrix[:, at])
    np.testing.assert_allclose(encoder.gram(at), matrix[:, at].T @ matrix[:, at], atol=1e-12)
    np.testing.assert_allclose(encoder.column_norms(), np.linalg.norm(matrix, axis=0), rtol=1e-12)
    assert encoder.non_negative == bool((matrix >= 0).all())
    gram = matrix.T @ matrix
    far = np.abs(np.subtract.outer(np.arange(13), np.arange(13))) >= encoder.reach
    assert np.abs(gram[far]).max(initial=0.0) <= 1e-12


@pytest.mark.parametrize("kind", ["toeplitz", "inverse", "buffered", "online tree", "banded"])
def test_stream_remembers_no_more_than_it_says(kind):
    encoder = encoders(64)[kind]
    stream, kept = encoder.stream(), []

    class Tracked:
        def __init__(self, value):
            self.value = value
            kept.append(self)

        def __add__(self, other):
            return Tracked(self.value + other.value)

        def __sub__(self, other):
            return Tracked(self.value - other.value)

        def __rmul__(self, number):
            return Tracked(number * self.value)

        __mul__ = __rmul__

    for _ in range(64):
        stream.step(lambda: Tracked(1.0))
    held = {id(one) for one in kept if any(one is part for part in _parts(stream))}
    assert 0 < len(held) <= stream.buffers < 16


def _parts(stream):
    for value in vars(stream).values():
        for item in value if hasattr(value, "__iter__") else [value]:
            yield from item if isinstance(item, tuple) else [item]


def test_inverse_series_agree_with_linear_algebra():
    for kind in ("toeplitz", "root", "inverse", "buffered"):
        encoder = encoders(13)[kind]
        np.testing.assert_allclose(
            encoder.inverse_coefficients, np.linalg.inv(encoder.matrix())[:, 0], atol=1e-12
        )


def test_square_root_has_published_coefficients():
    expected = np.cumprod(np.append(1.0, 1 - 1 / (2 * np.arange(1, 50))))
    np.testing.assert_allclose(square_root(Workload(50)).coefficients, expected, rtol=1e-13)


def test_all_bands_of_the_inverse_root_are_the_root():
    workload = Workload(30, momentum=0.8)
    np.testing.assert_allclose(
        inverse_square_root(workload, 30).matrix(), square_root(workload).matrix(), atol=1e-12
    )


def test_lambda_cgd_takes_back_the_last_draw():
    stream = lambda_cgd(4, 0.75).stream()
    draws = iter([1.0, 10.0, 100.0, 1000.0])
    noise = [stream.step(lambda: next(draws)) for _ in range(4)]
    assert noise == [1.0, 9.25, 92.5, 925.0]
    assert lambda_cgd(1, 0.5).bands == (1.0,)


def test_identity_is_independent_noise():
    np.testing.assert_array_equal(identity(5).matrix(), np.eye(5))
    assert identity(5).stream().buffers == 0


def test_order_of_a_tree_is_that_of_release():
    expected = [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 1, 1, 0],
        [1, 1, 1, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    np.testing.assert_array_equal(TreeEncoder(5).matrix(), expected)


def test_forest_is_block_diagonal():
    tree = TreeEncoder(4).matrix()
    forest = TreeEncoder(8, levels=3).matrix()
    np.testing.assert_array_equal(forest, np.kron(np.eye(2), tree))


@pytest.mark.parametrize("steps", [16, 64, 256])
def test_full_honaker_is_non_negative_and_as_private_as_the_tree(steps):
    tree = TreeEncoder(steps)
    full = tree.full_honaker()
    assert full.entries.min() >= -1e-12
    gram = full.entries.T @ full.entries
    np.testing.assert_allclose(gram, tree.gram(np.arange(steps)), atol=1e-10)


def test_matrix_that_is_not_lower_triangular_is_refused_with_a_way_out():
    matrix = np.array([[1.0, 0.5], [0.0, 1.0]])
    with pytest.raises(UnsoundConfiguration, match="from_gram"):
        DenseEncoder(matrix)
    causal = DenseEncoder.from_gram(matrix.T @ matrix)
    np.testing.assert_allclose(causal.entries.T @ causal.entries, matrix.T @ matrix, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ToeplitzEncoder(2, [1.0, 0.5, 0.25]), "at most steps=2 finite numbers"),
        (lambda: ToeplitzEncoder(2, [0.0, 1.0]), "the first is positive"),
        (lambda: ToeplitzEncoder(0, [1.0]), "steps must be at least 1"),
        (lambda: InverseToeplitzEncoder(3, [1.0, np.inf]), "finite numbers"),
        (lambda: InverseToeplitzEncoder(3, []), "bands must be a non-empty vector"),
        (lambda: ToeplitzEncoder(2, [2.6e-162]), "divide the encoder by a constant"),
        (lambda: InverseToeplitzEncoder(2, [1e170, 1.0]), "divide the encoder by a constant"),
        (lambda: BandedEncoder([[1.0, 1e-162]]), "divide the encoder by a constant"),
        (lambda: DenseEncoder([[1e200]]), "divide the encoder by a constant"),
        (lambda: BufferedEncoder(3, [0.5], [0.5, 0.1]), "must be of one length"),
        (lambda: BufferedEncoder(3, [0.5], [1.0]), "decays must lie in"),
        (lambda: BufferedEncoder(3, [0.7, 0.7], [0.5, 0.1]), "sum of at most 1"),
        (lambda: BufferedEncoder(3, [-0.1], [0.5]), "weights must be positive"),
        (lambda: BandedEncoder([1.0, 2.0]), "one row per band"),
        (lambda: BandedEncoder([[1.0], [1.0]]), "no more bands than steps"),
        (lambda: BandedEncoder([[1.0, 1.0], [1.0, 1.0]]), "zero where they would"),
        (lambda: BandedEncoder([[1.0, -1.0]]), "positive in the first row"),
        (lambda: DenseEncoder(np.ones((2, 3))), "must be a square matrix"),
        (lambda: DenseEncoder([[1.0, 0.0], [np.nan, 1.0]]), "must be finite"),
        (lambda: DenseEncoder([[1.0, 0.0], [1.0, 0.0]]), "positive diagonal"),
        (lambda: DenseEncoder.from_gram(np.ones(3)), "gram must be a square matrix"),
        (lambda: DenseEncoder.from_gram([[1.0, 0.5], [0.1, 1.0]]), "symmetric"),
        (lambda: DenseEncoder.from_gram(np.ones((2, 2))), "positive definite"),
        (lambda: TreeEncoder(4, decoder="full"), "call full_honaker"),
        (lambda: TreeEncoder(4, levels=0), "levels must be at least 1"),
        (lambda: TreeEncoder(10_000).full_honaker(), "dense methods serve up to"),
        (lambda: square_root(Workload(9_000)).matrix(), "dense methods serve up to"),
        (lambda: square_root(Workload(9), bands=0), "bands must be at least 1"),
        (lambda: lambda_cgd(9, 1.0), "weight must be in"),
    ],
)
def test_bad_encoders_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
