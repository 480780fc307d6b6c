"""The table of the zoo in docs/replay.md: what is found by whom, in how many runs."""

from audit.zoo import budgets, dependence, sensitivities

LOOPS = "audit_loop"
OTHERS = [
    ("training that never moves", "meta-pytorch/opacus#820", "replay (a note)", "2"),
    ("shuffled batches presented as Poisson samples", "", LOOPS, "1,200"),
    ("noise over the number of microbatches", "", LOOPS, "1,200"),
    ("noise in every microbatch (too much)", "", LOOPS, "400"),
    ("allocation presented as Poisson sampling", "", LOOPS, "1,200"),
    ("noise of one seed in all runs", "", LOOPS, "1,200"),
    ("empty batches drawn again", "", LOOPS, "1,200"),
    ("batches cut without being accounted for", "", LOOPS, "1,200"),
    ("one batch kept for all steps", "", LOOPS, "8,000"),
    ("sparse vector without an end", "Lyu, Su and Li (2017), algorithm 6", "audit_training", "800"),
    ("mixed models with momentum", "", "refused; audit_training", "8,000"),
    ("key of the noise in a checkpoint", "", "no place for it", "0"),
    ("tiny spend lost in rounding", "maziyarpanahi/openmed#2457", "refused", "0"),
    ("sum in doubles moves too far", "Casacuberta et al. (2022)", "summed exactly", "0"),
]


def rows():
    """Return the rows of the table: bug, source, what finds it, and runs."""
    replayed = [
        (bug.title, bug.source, "replay with a claim" if bug.claim else "replay", "2")
        for bug in (*sensitivities.BUGS, *dependence.BUGS, *budgets.BUGS)
    ]
    return [*replayed, *OTHERS]
