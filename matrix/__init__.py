"""`make matrix`: every release of torch that we support, each in an environment of its own, and what came of it.

For each release, one after the other: an environment is built, the self-check, the drop-in suite, the fault suite and two
benchmarks run in it, and it is deleted. The result is one row, kept as `docs/versions/RELEASE.json`.

    releases     which releases; the only list
    rows         a row, and how it is read from what pytest, the benchmarks and the self-check write; pure
    page         `docs/versions.md` and the table of `torch_side/known.py`, from the rows; pure
    environment  builds and deletes an environment, and runs programs in it, each with a deadline
    self_check   the self-check of antifreeze, as a program
    __main__     the steps in their order
"""
