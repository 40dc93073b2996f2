"""A batch that was made in the trainer, as it would arrive from a worker: nothing in it is the dataset's own.

A dataset may return what it keeps (a cached sample, a buffer that the next sample is written into), and the loop may
change what it gets. With workers neither sees the other. So a batch that is made here is pickled as a worker pickles it,
into memory of this process, and read from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antifreeze.engine.arena import segment, shared
from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.views import read_batch, read_letter
from antifreeze.engine.arena.writer import SlotWriter
from antifreeze.engine.crossing import results


class Sender:
    """Sends batches from this process to itself."""

    def __init__(self) -> None:
        shared.begin()
        self._known: dict[int, Any] = {}

        class ByReference(results.ResultPickler):
            """Classes and functions come back as themselves."""

            def persistent_id(_, thing: Any) -> int | None:  # noqa: N805
                if not results.goes_by_value(thing):
                    return None
                self._known[id(thing)] = thing
                return id(thing)

        self._writer = SlotWriter(ByReference, segment.in_private)
        self._forms: dict[int, Form] = {}

    def send(self, batch: Any) -> Callable[[], Any]:
        """What gives the batch as it arrives, once; whatever the classes in it raise passes through."""
        known = self._known = {}
        self._writer.begin(None)
        parcel, definition, body, made, descriptors = self._writer.write(batch)
        if definition:
            self._forms[parcel.form] = Form(definition)
        form = self._forms[parcel.form] if parcel.form else None
        storages = [shared.storage_of(fd) for fd in descriptors]

        def receive() -> Any:
            if body is not None:
                return read_letter(body, parcel, form, known.__getitem__, storages)
            assert made is not None
            return read_batch(made, parcel, form, lend=made.owner, find=known.__getitem__, shared=storages)

        return receive
