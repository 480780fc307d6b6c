"""A source of random bits that a test writes down."""

from taut.noise import RandomSource


class Words(RandomSource):
    """The words that it is given, and an error when they are used up."""

    secure = False

    def __init__(self, words):
        self.words = [int(word) for word in words]
        self.used = 0

    def bytes(self, n):
        count = n // 8
        drawn = self.words[self.used : self.used + count]
        assert len(drawn) == count, "more words drawn than expected"
        self.used += count
        return b"".join(word.to_bytes(8, "little") for word in drawn)
