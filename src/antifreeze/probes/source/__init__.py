"""The source of a program, read and not run: the script, and the user's own modules that it imports.

`files` finds and parses them, `names` sees through imports, `definitions` and `program` tell where a name is defined and
where a value comes from; on these stand `loaders`, `loops`, `classes`, `sights/`, `inits` and `settings`, one per kind of
fact.
"""

from __future__ import annotations

from antifreeze.probes.source.reader import read_source

__all__ = ["read_source"]
