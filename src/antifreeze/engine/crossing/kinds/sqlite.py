"""Connections to sqlite files: opened again read-only, with the settings that can be asked for.

Functions, collations and pragmas that the program has set on a connection cannot be asked for; nor can
`check_same_thread`, which the copy is not strict about.
"""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import quote

from antifreeze.engine.crossing.kinds.base import (
    FORK,
    Kind,
    Luggage,
    NamedFile,
    OnlyInherited,
    Reduced,
    fresh,
    named_file,
    with_attributes,
)
from antifreeze.errors import CannotCross

_SETTINGS = ("isolation_level", "autocommit", "row_factory", "text_factory")


def plan(handle: sqlite3.Connection, luggage: Luggage) -> Reduced:
    """The files of its databases, and its settings."""
    try:
        databases = {_text(name): _text(path) for _, name, path in _ask(handle, "PRAGMA database_list")}
    except sqlite3.ProgrammingError as error:
        if "closed" not in str(error):  # of another thread, and asks to be used there only
            raise
        return open_closed, (type(handle),)
    databases.pop("temp", None)
    if not all(databases.values()):
        raise OnlyInherited("a database of sqlite that is in memory")
    if handle.in_transaction:
        raise CannotCross(
            f"the connection to {databases['main']!r} is in the middle of a transaction",
            why="a worker would not see what has not been committed",
            try_=f"commit() before iter(loader), or {FORK}",
        )
    files = {name: named_file(path) for name, path in databases.items()}
    settings = {name: getattr(handle, name) for name in _SETTINGS if hasattr(handle, name)}
    ((busy_ms,),) = _ask(handle, "PRAGMA busy_timeout")
    return with_attributes(handle, open_again, type(handle), files, busy_ms / 1000, _detected_types(handle), settings)


def open_again(
    cls: type[sqlite3.Connection],
    files: dict[str, NamedFile],
    timeout_s: float,
    detect_types: int,
    settings: dict[str, Any],
) -> sqlite3.Connection:
    """The other side of `plan`."""
    handle: sqlite3.Connection = fresh(cls)
    main, *others = files.items()
    sqlite3.Connection.__init__(
        handle, _uri(main[1]), timeout=timeout_s, detect_types=detect_types, check_same_thread=False, uri=True
    )
    for name, file in others:
        handle.execute(f"ATTACH ? AS {_quoted(name)}", (_uri(file),))
    for file in files.values():
        file.check()
    for name, value in settings.items():
        setattr(handle, name, value)
    return handle


def open_closed(cls: type[sqlite3.Connection]) -> sqlite3.Connection:
    """What is closed arrives closed."""
    handle: sqlite3.Connection = fresh(cls)
    sqlite3.Connection.__init__(handle, ":memory:")
    handle.close()
    return handle


def _uri(file: NamedFile) -> str:
    return f"file:{quote(file.path)}?mode=ro"


def _ask(handle: sqlite3.Connection, question: str) -> list[Any]:
    cursor = sqlite3.Cursor(handle)
    cursor.row_factory = None
    return cursor.execute(question).fetchall()


def _detected_types(handle: sqlite3.Connection) -> int:
    """The `detect_types` that it was opened with, which no attribute tells, by what it does."""
    cursor = sqlite3.Cursor(handle)
    name = cursor.execute('SELECT 1 AS "x [y]"').description[0][0]
    by_name = sqlite3.PARSE_COLNAMES if name == "x" else 0
    return by_name | (sqlite3.PARSE_DECLTYPES if _converts_columns(handle) else 0)


def _converts_columns(handle: sqlite3.Connection) -> bool:
    """Whether a column is converted by its declared type; looks at those whose type has a converter."""
    columns = (
        "SELECT m.name, c.name, upper(c.type) FROM sqlite_master AS m, pragma_table_info(m.name) AS c "
        "WHERE m.type = 'table' AND c.type != ''"
    )
    for table, column, declared in _ask(handle, columns):
        if _text(declared).replace("(", " ").split()[0] not in sqlite3.converters:
            continue
        place = _quoted(_text(column))
        # An expression has no declared type, and is never converted.
        for as_column, as_it_is in _ask(handle, f"SELECT {place}, +{place} FROM {_quoted(_text(table))} LIMIT 1"):
            return type(as_column) is not type(as_it_is) or bool(as_column != as_it_is)
    return False


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


KINDS: dict[type, Kind] = {sqlite3.Connection: Kind(plan, close=sqlite3.Connection.close)}
