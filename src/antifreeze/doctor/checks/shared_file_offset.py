"""Forked workers read through one open file, and move each other's position in it.

What happens: a file that is opened in `__init__` is one and the same in all forked workers, its position included.
Between the `seek()` and the `read()` of one worker another one moves it. Samples hold other samples' bytes, without an
error; or an archive says `BadZipFile`, a parser stumbles over half a line. It also happens through libraries: ZipFile,
`numpy.load` of .npz, tarfile, HDF5 over a file object; and with descriptors that are kept as numbers: `os.open` or
`fileno()`, then `os.lseek` and `os.read`.

How we know: the dataset holds an open file or archive, workers are forked, and in a trial samples from workers differ
from those that the training process reads, or fail although they load without workers.

What to do: `antifreeze run train.py`: each of our workers has the file for itself. In your code: open it in the worker:
`self.f = antifreeze.per_worker(lambda: open(path, "rb"))`, then `self.f().read()`; or read without a position:
`os.pread(fd, count, offset)`, `numpy.memmap`.

Looks like: several workers reading the same *file* is no problem if each opens it: it is the shared open file that is.
A lock around the read, which is often advised, makes workers take turns (AF403) and does not mend a position that is
remembered between samples. h5py by path is safe too: it reads with positions of its own.

Read on: https://man7.org/linux/man-pages/man2/open.2.html (open file descriptions),
https://docs.python.org/3/library/os.html#os.pread,
https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, whose
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried, with_workers
from antifreeze.doctor.facts import Assignment, DatasetClass, Held, Loader, Place
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.handles import harm_of, opener, own_name

KINDS = ("file", "archive", "hdf5")
DESCRIPTORS = ("os.open", "fileno")
OPENS = ("open", "io.open", "zipfile.ZipFile", "tarfile.open", "numpy.load", "gzip.open", *DESCRIPTORS)
# Uses that move the position.
MOVES = {"read", "readline", "readlines", "readinto", "seek", "next", "for", "[]", "open", "extractfile", "getmember"}
MOVES |= {"os.read", "os.readv", "os.lseek", "os.sendfile"}

_FILE = Held(path="dataset.f", kind="file", what="an open file 'records.bin' (mode 'rb')", place=Place("train.py", 27))
_LOADER = Loader(number=0, num_workers=2, start_method="fork", held=(_FILE,))
SICK = tried(_LOADER, as_written(wrong=("460", "17")), with_workers(0))
HEALTHY = tried(_LOADER, as_written())


@check("AF307", "shared-file-offset", sick=SICK, healthy=HEALTHY)
def shared_file_offset(case: LoaderCase) -> Iterator[Finding]:
    yield from (_seen(case) or _possible(case))
    yield from _read(case)


def _seen(case: LoaderCase) -> list[Finding]:
    harm = harm_of(case, *KINDS)
    if harm is None:
        return []
    return [
        _finding(
            harm.held,
            weight=harm.weight,
            why=f"{whose(harm.held)} was opened before the workers were forked, so all of them move one position in it"
            f"{_where(harm.raised.place if harm.raised else None)}",
            place=harm.held.place or (harm.raised.place if harm.raised else None) or case.built_at,
            evidence=harm.evidence,
            sample=harm.sample,
        )
    ]


def _possible(case: LoaderCase) -> list[Finding]:
    """A file that is read by position in several workers; it went well in the trial, or nothing was tried."""
    if not case.is_forked or case.num_workers < 2:
        return []
    for held in case.held:
        assignment = _assignment(case, held)
        if held.kind in ("file", "archive") and assignment and MOVES & set(assignment.used_as):
            why = (
                f"{whose(held)} was opened before the workers were forked; {assignment.used_at or 'the dataset'} moves its "
                "position, for all of them"
            )
            return [
                _finding(
                    held,
                    weight=Weight.POSSIBLE,
                    why=why,
                    place=held.place or assignment.place,
                    evidence=(f"used by {', '.join(sorted(MOVES & set(assignment.used_as)))} per sample",),
                )
            ]
    return []


def _finding(
    held: Held,
    *,
    weight: Weight,
    why: str,
    place: Place | None,
    evidence: tuple[str, ...],
    sample: str | None = None,
) -> Finding:
    name, is_archive = own_name(held.path, held.place), held.kind == "archive"
    opens = opener(held.what) or "open(path, 'rb')"
    number = name if "descriptor" in held.what else f"{name}.fileno()"
    by_place = "" if is_archive else f"read without a position: os.pread({number}, count, offset), or numpy.memmap"
    may = "may get" if weight is Weight.POSSIBLE else "get"
    return Finding(
        weight=weight,
        what=f"workers {may} each other's data, without an error or with a strange one: they share one open file",
        where=place,
        why=why,
        fix=(
            "antifreeze run {script}",
            f"open it in each worker: {name} = antifreeze.per_worker(lambda: {opens}), then use {name}()",
            *((by_place,) if by_place else ()),
        ),
        evidence=evidence,
        sample=sample,
        rivals=("AF332",) if weight is Weight.POSSIBLE else (),
        decide="antifreeze doctor --batches 200 {script}" if weight is Weight.POSSIBLE else None,
    )


def _what(value: str) -> str:
    return f"a descriptor of {value}" if value in DESCRIPTORS else value


def _where(place: Place | None) -> str:
    return f"; it showed{at(place)}" if place else ""


def _assignment(case: LoaderCase, held: Held) -> Assignment | None:
    """Where the source opens what is held."""
    name = held.path.rpartition(".")[2]
    found = (each for dataset in case.source.datasets for each in dataset.assignments)
    return next((each for each in found if each.name == name and each.value in OPENS), None)


# --- from the source alone


def _read(case: LoaderCase) -> Iterator[Finding]:
    for dataset in case.unrun_datasets:
        if case.start_method in (None, "fork") and case.has_workers(more_than=1) is not False:
            yield from _moved(dataset)


def _moved(dataset: DatasetClass) -> Iterator[Finding]:
    for each in dataset.assignments:
        moves = MOVES & set(each.used_as)
        is_read = each.mode is None or not set(each.mode) & set("wax")
        if each.value in OPENS and each.value != "numpy.load" and moves and is_read:
            kind = "archive" if each.value in ("zipfile.ZipFile", "tarfile.open") else "file"
            yield _finding(
                Held(path=f"dataset.{each.name}", kind=kind, what=_what(each.value), place=each.place),
                weight=Weight.POSSIBLE,
                why=f"dataset.{each.name} is opened at {each.place} and used at "
                f"{each.used_at or dataset.place}; forked workers share it, with one position for all",
                place=each.place,
                evidence=(f"{each.value}, then {', '.join(sorted(moves))} per sample",),
            )
