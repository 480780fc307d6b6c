"""Training loops on given gradients: two that keep their plan, and others with a mistake each."""

import numpy as np


class Sound:
    """Poisson batches, clipped sums, noise once, division by the expected batch size."""

    def __init__(self, plan, microbatch=None):
        self.plan = plan
        self.microbatch = microbatch

    def __call__(self, gradients, seed):
        self.draw = np.random.default_rng(seed)
        self.begin(gradients)
        return np.stack([self.step(gradients, self.batch(gradients, t)) for t in range(self.steps)])

    @property
    def steps(self):
        return self.plan.steps

    @property
    def norm(self):
        return self.plan.clipping.norm

    @property
    def deviation(self):
        return self.plan.noise_multiplier * self.norm

    def begin(self, gradients):
        pass

    def batch(self, gradients, step):
        return np.flatnonzero(self.draw.random(len(gradients)) < self.plan.rate)

    def clipped(self, rows):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows * np.minimum(1.0, self.norm / np.maximum(norms, 1e-12))

    def noise(self, gradients):
        return self.draw.normal(0.0, self.deviation, gradients.shape[1])

    def divisor(self, batch):
        return self.plan.batch_size

    def step(self, gradients, batch):
        total = self.clipped(gradients[batch]).sum(0)
        return (total + self.noise(gradients)) / self.divisor(batch)


class FixedSize(Sound):
    """Batches of one size, uniform among all subsets."""

    def batch(self, gradients, step):
        return self.draw.permutation(len(gradients))[: int(self.plan.batch_size)]


class Shuffled(Sound):
    """A shuffled loader in the place of Poisson sampling."""

    def begin(self, gradients):
        self.parts = []

    def batch(self, gradients, step):
        if not self.parts:
            order = self.draw.permutation(len(gradients))
            self.parts = np.array_split(order, round(1 / self.plan.rate))
        return self.parts.pop()


class Allocated(Sound):
    """Every example in one step of every epoch, drawn uniformly."""

    def batch(self, gradients, step):
        period = round(1 / self.plan.rate)
        if step % period == 0:
            self.steps_drawn = self.draw.integers(period, size=len(gradients))
        return np.flatnonzero(self.steps_drawn == step % period)


class RealisedBatchSize(Sound):
    """Divides by the number of examples that were drawn."""

    def divisor(self, batch):
        return max(len(batch), 1)


class NoisePerMicrobatch(Sound):
    """Adds the noise once for every microbatch."""

    share = 1.0

    def step(self, gradients, batch):
        count = max(-(-len(batch) // self.microbatch), 1)
        scale = 1.0 if self.share == 1.0 else 1 / count
        total = self.clipped(gradients[batch]).sum(0)
        noise = sum(self.noise(gradients) for _ in range(count)) * scale
        return (total + noise) / self.divisor(batch)


class NoiseShareOfMicrobatch(NoisePerMicrobatch):
    """Adds to every microbatch the noise over the number of microbatches, as one does with sums."""

    share = None


class NoiseReused(Sound):
    """Draws noise once and adds it in every step."""

    def begin(self, gradients):
        self.kept = super().noise(gradients)

    def noise(self, gradients):
        return self.kept


class ClippedAfterAveraging(Sound):
    """Clips the mean over the batch instead of every example."""

    def step(self, gradients, batch):
        mean = gradients[batch].sum(0) / self.plan.batch_size
        clipped = self.clipped(mean[None])[0]
        return clipped + self.noise(gradients) / self.plan.batch_size


class ClippedAtTwice(Sound):
    """Clips at twice the norm that the noise is made for."""

    def clipped(self, rows):
        return 2 * super().clipped(rows / 2)


class FixedSizeClippedAtTwice(ClippedAtTwice, FixedSize):
    """The same mistake with batches of one size."""


class NoiseOfOneSeed(Sound):
    """Seeds the generator of the noise with a constant, in every run the same."""

    def begin(self, gradients):
        self.fixed = np.random.default_rng(42)

    def noise(self, gradients):
        return self.fixed.normal(0.0, self.deviation, gradients.shape[1])


class EmptyBatchesDrawnAgain(Sound):
    """Draws until there is an example, since an empty batch is no use to an average."""

    def batch(self, gradients, step):
        drawn = np.zeros(0, dtype=int)
        while not len(drawn):
            drawn = super().batch(gradients, step)
        return drawn


class Truncated(Sound):
    """Leaves out what does not fit into a batch of the expected size."""

    def batch(self, gradients, step):
        return super().batch(gradients, step)[-int(self.plan.batch_size) :]


class OneBatch(Sound):
    """Draws a batch once and keeps it, as a sampler does that is seeded anew in every epoch."""

    def begin(self, gradients):
        self.kept = super().batch(gradients, 0)

    def batch(self, gradients, step):
        return self.kept


class InOrder(Sound):
    """Takes examples in the order of the file."""

    def batch(self, gradients, step):
        parts = round(1 / self.plan.rate)
        return np.arange(len(gradients))[step % parts :: parts]
