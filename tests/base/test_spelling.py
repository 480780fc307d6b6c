"""What was meant by a word that is not known."""

from taut._base.spelling import did_you_mean, nearest

KNOWN = ("batch_size", "steps", "rate")


def test_the_nearest_word_is_found():
    assert nearest("batchsize", KNOWN) == "batch_size"
    assert nearest("colour", KNOWN) is None
    assert nearest("stp", KNOWN) == "steps"
    assert nearest("stp", KNOWN, like=0.9) is None
    assert nearest(3, KNOWN) is None


def test_a_refusal_ends_with_a_hint():
    assert did_you_mean("batchsize", KNOWN) == "; did you mean 'batch_size'?"
    assert did_you_mean("colour", KNOWN) == ""
    assert did_you_mean("colour", KNOWN, otherwise=True) == "; known are batch_size, steps, rate"
    assert did_you_mean("colour", (), otherwise=True) == "; known are none"
