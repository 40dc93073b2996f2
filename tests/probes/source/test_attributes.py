"""What `__init__` puts into a dataset, and how samples use it."""

import pytest

from antifreeze.doctor.facts import Assignment, Source

from .conftest import HEAD, Read


def assigned(source: Source) -> dict[str, Assignment]:
    return {each.name: each for found in source.datasets for each in found.assignments}


@pytest.mark.parametrize(
    ("value", "kind", "mode"),
    [
        ("open(path, 'rb')", "open", "rb"),
        ("open(path, mode='r')", "open", "r"),
        ("np.load(path)", "numpy.load", None),
        ("mp.get_context('fork').Lock()", "multiprocessing.Lock", None),
        ("torch.multiprocessing.Lock()", "multiprocessing.Lock", None),
        ("lambda x: x", "lambda", None),
        ("(x for x in y)", "generator", None),
        ("made()", "generator", None),
        ("[x for x in y]", "listcomp", None),
        ("[]", "list", None),
        ("{}", "dict", None),
        ("{1, 2}", "set", None),
        ("None", "other", None),
        ("path", "other", None),
        ("f", "zipfile.ZipFile", None),
    ],
)
def test_the_kind_of_a_value_is_told(read: Read, value: str, kind: str, mode: str | None) -> None:
    source = read(
        f"{HEAD}import zipfile\ndef made():\n    yield 1\nclass Mine(Dataset):\n"
        f"    def __init__(self, path):\n        f = zipfile.ZipFile(path)\n        self.thing = {value}\n"
    )
    assert (assigned(source)["thing"].value, assigned(source)["thing"].mode) == (kind, mode)


def test_methods_that_only_init_calls_and_bases_and_the_body_of_the_class_count(read: Read) -> None:
    source = read(
        HEAD
        + """
class Base(Dataset):
    lock = mp.Lock()
    def __init__(self):
        self.a = []
class Mine(Base):
    def __init__(self):
        super().__init__()
        self.prepare()
        self.open()
    def prepare(self):
        self.b = []
    def open(self):
        self.c = open("x")
    def __getitem__(self, i):
        self.open()
        self.d = []
"""
    )
    (mine,) = (each for each in source.datasets if each.name == "Mine")
    assert {each.name for each in mine.assignments} == {"lock", "a", "b"}


def test_uses_per_sample_are_told_through_methods_and_local_names(read_dataset: Read) -> None:
    found = assigned(
        read_dataset(
            """
            def __init__(self):
                self.f = open("x", "rb")
                self.pool, self.table = make(), {}
                self.unused = open("y")
            def __getitem__(self, i):
                with self.pool:
                    return self.read(i), self.table[i]
            def read(self, i):
                f = self.f
                f.seek(i)
                return f.read(1)
            def close(self):
                self.unused.close()
            """
        )
    )
    assert set(found["f"].used_as) == {"seek", "read"}
    assert found["f"].used_at is not None
    assert found["f"].used_at.function == "read"
    assert found["table"].used_as == ("[]",)
    assert found["pool"].used_as == ("with",)
    assert found["unused"].used_at is None


def test_descriptors_that_are_kept_as_numbers_are_told_with_what_reads_them(read_dataset: Read) -> None:
    found = assigned(
        read_dataset(
            """
            def __init__(self, path):
                f = open(path, "rb")
                self.moved, self.placed = os.open(path, os.O_RDONLY), f.fileno()
            def __getitem__(self, i):
                os.lseek(self.moved, i, os.SEEK_SET)
                fd = self.moved
                return os.read(fd, 4), os.pread(self.placed, 4, i)
            """
        )
    )
    assert (found["moved"].value, found["moved"].used_as) == ("os.open", ("os.lseek", "os.read"))
    assert (found["placed"].value, found["placed"].used_as) == ("fileno", ("os.pread",))
