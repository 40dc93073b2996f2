"""Claims: an HDF5 file, or a sqlite connection, that was opened before the fork gives workers garbage."""

import sqlite3
import tempfile
from typing import Any

import h5py
import numpy as np
from torch.utils.data import DataLoader, Dataset

ROWS, WIDTH, READS = 300, 1024, 20


class Reads(Dataset[int]):
    """How many of some reads gave another row than the one that was asked for."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> int:
        rows = [(index * 7 + step * 31) % ROWS for step in range(READS)]
        return sum(bool((self.row(row) != row).any()) for row in rows)

    def row(self, row: int) -> Any:
        if isinstance(self.source, sqlite3.Connection):
            (blob,) = self.source.execute("select x from t where i = ?", (row,)).fetchone()
            return np.frombuffer(blob, dtype="i4")
        return self.source["x"][row]


def wrong(source: Any) -> str:
    loader = DataLoader(Reads(source), batch_size=4, num_workers=2, shuffle=True, multiprocessing_context="fork")
    try:
        return f"{int(sum(batch.sum() for batch in loader))} of {ROWS * READS} reads wrong"
    except Exception as error:  # noqa: BLE001 - garbage can end in anything
        return f"an error: {str(error).strip().splitlines()[-1]}"


def main() -> None:
    table = np.arange(ROWS, dtype="i4").repeat(WIDTH).reshape(ROWS, WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        for name, compression in (("plain", None), ("gzip", "gzip")):
            with h5py.File(f"{folder}/{name}.h5", "w") as file:
                file.create_dataset("x", data=table, chunks=(1, WIDTH), compression=compression)
            with h5py.File(f"{folder}/{name}.h5", "r") as file:
                print(f"h5py.File(path), {name}:", wrong(file))
        with open(f"{folder}/plain.h5", "rb") as opened, h5py.File(opened, "r") as file:
            print("h5py.File(open(path)):", wrong(file))
        for journal in ("delete", "wal"):
            connection = sqlite3.connect(f"{folder}/{journal}.db")
            connection.execute(f"pragma journal_mode={journal}")
            connection.execute("create table t(i integer primary key, x blob)")
            connection.executemany("insert into t values(?, ?)", ((row, table[row].tobytes()) for row in range(ROWS)))
            connection.commit()
            connection.close()
            connection = sqlite3.connect(f"{folder}/{journal}.db")
            connection.execute("pragma cache_size=8")
            connection.execute("select count(*) from t").fetchone()
            print(f"sqlite3, journal_mode={journal}, reading only:", wrong(connection))
            connection.close()


if __name__ == "__main__":
    main()
