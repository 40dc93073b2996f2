"""The script → facts about its source."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from antifreeze.doctor.facts import Source
from antifreeze.probes.source import settings
from antifreeze.probes.source.classes import dataset_class, find_classes
from antifreeze.probes.source.comments import ignored_codes
from antifreeze.probes.source.files import read_files
from antifreeze.probes.source.inits import worker_inits
from antifreeze.probes.source.loaders import find_loaders
from antifreeze.probes.source.loops import find_loops
from antifreeze.probes.source.program import Program
from antifreeze.probes.source.samplers import tells_epochs


def read_source(script: Path, more: Iterable[Path] = (), *, base: Path | None = None) -> Source:
    """What the script says, with the user's own modules that it imports, and `more` files of the user's.

    Files are named from the directory of the script, or from `base`.
    """
    files, unreadable = read_files(script, more, base=base)
    shown = script.name
    if not files or files[0].path != script.absolute():
        return Source(script=shown, files=tuple(file.shown for file in files), unreadable=unreadable)
    program = Program(files)
    loaders = find_loaders(program)
    classes = find_classes(program, loaders)
    loops = find_loops(program, loaders, {each.found.node: each.changes for each in classes})
    return Source(
        script=shown,
        files=tuple(file.shown for file in files),
        datasets=tuple(dataset_class(program, each, loops) for each in classes),
        loaders=tuple(loader.fact for loader in loaders),
        loops=tuple(loop.fact for loop in loops),
        worker_inits=worker_inits(program, loaders),
        start_methods=settings.start_methods(program),
        start_method=settings.start_method(program),
        start_method_clashes=settings.start_method_clashes(program),
        tells_epochs=tells_epochs(program),
        thread_settings=settings.thread_settings(program),
        has_main_guard=settings.has_main_guard(files[0]),
        ignored={line: codes for file in files for line, codes in ignored_codes(file).items()},
        unreadable=unreadable,
    )
