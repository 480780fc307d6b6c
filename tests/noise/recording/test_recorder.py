"""The door of releases: nothing happens at it unless a recorder is installed, here and now."""

import contextvars
import threading

import numpy as np
import pytest

from taut.errors import UnsoundConfiguration
from taut.noise import L2Ball, default_generator, optimal_gaussian
from taut.noise.recording import Recorder, Release, active, recording, released

NOISE = optimal_gaussian(L2Ball(2, 1.0), epsilon=1.0, delta=1e-6)


class Silent(Recorder):
    """Gives out zeros in the place of every release, and counts."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def release(self, draw, release, source):
        del draw, source
        self.seen.append(release)
        return np.zeros(release.value.size)

    def bits(self, count):
        return bytes(count)

    def follow(self, source):
        raise NotImplementedError

    def batch(self, drawn, examples, *, joins, most):
        raise NotImplementedError


def test_nothing_is_described_outside_of_a_recording():
    assert released(lambda: 7, lambda: 1 / 0) == 7


def test_recorder_sees_what_is_declared():
    recorder = Silent()
    with recording(recorder):
        assert (NOISE.release([0.25, 0.5]) == 0).all()
        NOISE.release_sum([[3.0, 4.0], [0.0, 0.1]])
        assert default_generator().bytes(3) == bytes(3)
    first, second = recorder.seen
    assert first.kind == "GaussianNoise"
    assert first.sensitivity is NOISE.sensitivity
    assert first.value.tolist() == [0.25, 0.5]
    assert second.value == pytest.approx([0.6, 0.9])
    assert first.loss() == NOISE.loss
    assert "0.25" not in repr(first)


def test_recording_ends_with_its_block():
    recorder = Silent()
    with pytest.raises(ZeroDivisionError), recording(recorder):
        raise ZeroDivisionError
    assert active() is None
    assert not recorder.is_here
    assert (NOISE.release([0.0, 0.0]) != 0).any()


def test_context_that_was_copied_does_not_carry_it_on():
    """Tasks and callbacks that begin within a block may run after it, or in another thread."""
    found = []
    with recording(Silent()):
        context = contextvars.copy_context()
        other = threading.Thread(target=lambda: found.append(context.run(active)))
        other.start()
        other.join()
    found.append(context.run(active))
    assert found == [None, None]


def test_recordings_are_not_nested():
    with recording(Silent()), pytest.raises(UnsoundConfiguration), recording(Silent()):
        pass


def test_description_holds_its_value_and_shows_it_nowhere():
    release = Release("noise", np.array([1234.5]), L2Ball(1, 1.0), {"scale": 1.0})
    assert "1234.5" not in repr(release)
    assert "1234.5" not in str(release)
