import numpy as np
import pytest
from matrix.oracle import decoder, encoders

from taut.matrix import (
    FixedOrder,
    TreeEncoder,
    Workload,
    errors,
    identity,
    lambda_cgd,
    optimal_dense,
    sensitivity,
    square_root,
)

KINDS = sorted(encoders(5))
WORKLOADS = {
    "sums": Workload(13),
    "momentum": Workload(13, momentum=0.9, weight_decay=0.05),
    "schedule": Workload(13, momentum=0.5, learning_rates=np.linspace(1.0, 0.2, 13)),
    "equal rates": Workload(13, learning_rates=[0.3] * 13),
}


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_row_norms_of_the_decoded_workload(kind, name):
    encoder, workload = encoders(13)[kind], WORKLOADS[name]
    rule = FixedOrder(4)
    rows = np.linalg.norm(workload.matrix() @ decoder(encoder), axis=1)
    found = errors(encoder, workload, rule)
    expected = sensitivity(encoder, rule).value * rows
    np.testing.assert_allclose(found.per_step, expected, rtol=1e-9)
    assert found.maximum == pytest.approx(expected.max())
    assert found.root_mean_square == pytest.approx(np.sqrt(np.mean(expected**2)))


PUBLISHED = {  # identity, plain tree, online and full estimate, square root, optimum
    64: (5.7009, 4.594494, 3.652307, 2.517806, 2.229676, 2.099856),
    256: (11.336, 6.0029, 4.6501, 3.1022, 2.6688, 2.52441),
}


@pytest.mark.parametrize("steps", PUBLISHED)
def test_errors_of_prefix_sums_have_reference_values(steps):
    sums = Workload(steps)
    tree = TreeEncoder(steps)
    made = (
        identity(steps),
        TreeEncoder(steps, decoder="plain"),
        tree,
        tree.full_honaker(),
        square_root(sums),
        optimal_dense(sums).encoder,
    )
    found = [errors(encoder, sums).root_mean_square for encoder in made]
    assert found == pytest.approx(PUBLISHED[steps], rel=2e-5)


def test_full_honaker_is_the_least_squares_estimate():
    tree, sums = TreeEncoder(16), Workload(16)
    least_squares = sums.matrix() @ np.linalg.pinv(tree.matrix())
    np.testing.assert_allclose(
        np.linalg.norm(sums.matrix() @ decoder(tree.full_honaker()), "fro"),
        np.linalg.norm(least_squares, "fro"),
        rtol=1e-12,
    )


def test_errors_are_those_of_simulated_noise():
    sums, encoder = Workload(8, momentum=0.5), lambda_cgd(8, 0.7)
    random = np.random.default_rng(0)
    stream = encoder.stream()
    noise = np.array([stream.step(lambda: random.normal(size=200_000)) for _ in range(8)])
    simulated = sums.accumulated(noise).std(axis=1) * sensitivity(encoder).value
    np.testing.assert_allclose(errors(encoder, sums).per_step, simulated, rtol=0.01)


def test_tens_of_thousands_of_steps_need_no_matrix():
    steps = 12_000
    sums = Workload(steps)
    plain = errors(identity(steps), sums).root_mean_square
    assert plain == pytest.approx(np.sqrt((steps + 1) / 2))
    for encoder in (square_root(sums), lambda_cgd(steps, 0.99), TreeEncoder(steps)):
        assert errors(encoder, sums).root_mean_square < plain / 5


def test_banded_matrix_beyond_dense_methods_is_streamed():
    from taut.matrix import BandedEncoder, ToeplitzEncoder

    steps = 4_200
    table = np.tile([[1.0], [0.5]], steps)
    table[1, -1] = 0.0
    workload = Workload(steps, weight_decay=0.01)
    found = errors(BandedEncoder(table), workload).per_step
    expected = errors(ToeplitzEncoder(steps, [1.0, 0.5]), workload).per_step
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_sizes_must_agree():
    with pytest.raises(ValueError, match="one number of steps, got 4 and 5"):
        errors(identity(4), Workload(5))
