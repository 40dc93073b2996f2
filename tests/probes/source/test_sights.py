"""What is to be seen in the code that runs per sample, and what is fine there."""

import textwrap

import pytest

from antifreeze.doctor.facts import Sight, Source

from .conftest import HEAD, Read


def seen(source: Source, kind: str) -> list[Sight]:
    return [sight for each in source.datasets for sight in each.sights if sight.kind == kind]


def getitem(body: str) -> str:
    return "def __getitem__(self, i):\n" + textwrap.indent(textwrap.dedent(body), "    ")


# --- None


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    return 1\nexcept OSError:\n    return None",
        "try:\n    return 1\nexcept OSError:\n    return",
        "try:\n    return 1\nexcept:\n    pass",
        "try:\n    return 1\nexcept OSError as e:\n    print(e)",
    ],
)
def test_none_instead_of_a_sample_is_seen(read_dataset: Read, body: str) -> None:
    (sight,) = seen(read_dataset(getitem(body)), "returns-none-in-except")
    assert sight.also is not None
    assert "except" in sight.also.text


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    return 1\nexcept OSError:\n    return self[i + 1]",
        "try:\n    x = 1\nexcept OSError:\n    x = None\nreturn x or 2",
        "try:\n    return 1\nexcept OSError:\n    raise ValueError",
        "for k in range(3):\n    try:\n        return 1\n    except OSError:\n        pass\nraise OSError",
        "try:\n    x = 1\nexcept OSError:\n    pass\nreturn x",
    ],
)
def test_another_way_out_of_an_error_is_none_of_that(read_dataset: Read, body: str) -> None:
    assert seen(read_dataset(getitem(body)), "returns-none-in-except") == []


# --- exits, processes, loops, next


@pytest.mark.parametrize("body", ["sys.exit(1)", "os._exit(0)", "exit()", "raise SystemExit", "helper()"])
def test_an_exit_is_seen_also_in_a_function_that_is_called(read: Read, body: str) -> None:
    text = f"{HEAD}import os, sys\ndef helper():\n    sys.exit('x')\nclass Mine(Dataset):\n"
    source = read(text + textwrap.indent(getitem(body), "    "))
    assert len(seen(source, "exit")) == 1


def test_an_exit_elsewhere_is_not(read_dataset: Read) -> None:
    source = read_dataset("def __init__(self):\n    sys.exit()\n" + getitem("return i"))
    assert seen(source, "exit") == []


@pytest.mark.parametrize("body", ["mp.Pool(2)", "mp.get_context('fork').Pool(2)", "mp.Process(target=f).start()"])
def test_processes_in_a_worker_are_seen(read_dataset: Read, body: str) -> None:
    assert len(seen(read_dataset(getitem(body)), "process-pool")) == 1


def test_an_endless_loop_is_seen_and_a_stream_is_none(read_dataset: Read) -> None:
    assert len(seen(read_dataset(getitem("while True:\n    if ok():\n        return 1")), "endless-loop")) == 1
    assert (
        seen(
            read_dataset("def __iter__(self):\n    while True:\n        yield 1", base="IterableDataset"),
            "endless-loop",
        )
        == []
    )


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("return next(self.it)", 1),
        ("return next(self.it, None)", 0),
        ("return next(x for x in y)", 0),
        ("try:\n    return next(self.it)\nexcept StopIteration:\n    return 0", 0),
    ],
)
def test_an_iterator_that_may_run_dry_is_seen(read_dataset: Read, body: str, count: int) -> None:
    assert len(seen(read_dataset(getitem(body)), "next")) == count


# --- network

NETWORK = "import requests, socket, urllib.request, http.client, httpx, boto3\nfrom requests import get as fetch\n"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("requests.get(url)", "requests.get"),
        ("requests.get(url, timeout=None)", "requests.get"),
        ("fetch(url)", "requests.get"),
        ("urllib.request.urlopen(url)", "urllib.request.urlopen"),
        ("socket.create_connection(a)", "socket.create_connection"),
        ("http.client.HTTPSConnection(host)", "http.client.HTTPSConnection"),
        ("with requests.Session() as s:\n    s.get(url)", "requests.Session.get"),
        ("self.session.get(url)", "requests.Session.get"),
    ],
)
def test_a_call_that_waits_for_ever_is_seen(read: Read, body: str, what: str) -> None:
    init = "def __init__(self):\n    self.session = requests.Session()\n"
    text = f"{HEAD}{NETWORK}class Mine(Dataset):\n{textwrap.indent(init + getitem(body), '    ')}"
    assert [sight.what for sight in seen(read(text), "call-without-timeout")] == [what]


@pytest.mark.parametrize(
    "body",
    [
        "requests.get(url, timeout=3)",
        "requests.get(url, **options)",
        "urllib.request.urlopen(url, None, 3)",
        "socket.create_connection(a, 3)",
        "s = socket.create_connection(a)\ns.settimeout(3)",
        "httpx.get(url)",
        "boto3.client('s3').get_object(Key=k)",
        "self.table.get(i)",
        "d = {}\nd.get(i)",
    ],
)
def test_a_call_with_a_bound_is_fine(read: Read, body: str) -> None:
    text = f"{HEAD}{NETWORK}class Mine(Dataset):\n{textwrap.indent(getitem(body), '    ')}"
    assert seen(read(text), "call-without-timeout") == []


def test_a_default_time_out_bounds_sockets_and_not_requests(read: Read) -> None:
    body = getitem("socket.create_connection(a)\nrequests.get(u)")
    text = f"{HEAD}{NETWORK}socket.setdefaulttimeout(5)\nclass Mine(Dataset):\n{textwrap.indent(body, '    ')}"
    assert [sight.what for sight in seen(read(text), "call-without-timeout")] == ["requests.get"]


# --- locks


@pytest.mark.parametrize(
    ("lock", "body", "made_by"),
    [
        ("mp.Lock()", "with self.lock:\n    return open('x').read()", "multiprocessing.Lock"),
        ("mp.Lock()", "with self.lock:\n    return self.table[i]", "multiprocessing.Lock"),
        ("mp.Manager().Lock()", "with self.lock:\n    x = np.load(p)\nreturn x", "multiprocessing.Manager().Lock"),
    ],
)
def test_a_lock_around_a_read_is_seen(read_dataset: Read, lock: str, body: str, made_by: str) -> None:
    (sight,) = seen(read_dataset(f"def __init__(self):\n    self.lock = {lock}\n{getitem(body)}"), "lock-around-read")
    assert (sight.what, sight.made_by) == ("self.lock", made_by)


@pytest.mark.parametrize(
    ("lock", "body"),
    [
        ("mp.Lock()", "with self.lock:\n    self.count += 1\nreturn i"),
        ("torch.no_grad()", "with self.lock:\n    return open('x').read()"),
    ],
)
def test_another_with_is_none(read_dataset: Read, lock: str, body: str) -> None:
    source = read_dataset(f"def __init__(self):\n    self.lock = {lock}\n{getitem(body)}")
    assert seen(source, "lock-around-read") == []


# --- writes


@pytest.mark.parametrize(
    "body",
    [
        "open('scratch.txt', 'w').write(x)",
        "with open(self.path, 'wb') as f:\n    f.write(x)",
        "path = os.path.join(self.root, 'x.npy')\nnp.save(path, x)",
        "torch.save(x, f'{self.root}/last.pt')",
        "image.save('last.png')",
        "open(SCRATCH, 'w').write(x)",
    ],
)
def test_a_file_that_all_workers_write_is_seen(read: Read, body: str) -> None:
    init = "def __init__(self, root, path):\n    self.root, self.path = root, path\n"
    text = f"{HEAD}import os\nSCRATCH = 'x'\nclass Mine(Dataset):\n{textwrap.indent(init + getitem(body), '    ')}"
    assert len(seen(read(text), "writes-fixed-path")) == 1


@pytest.mark.parametrize(
    "body",
    [
        "open(self.path).read()",
        "open(self.path, 'rb')",
        "open('log.txt', 'a').write(x)",
        "np.save(f'{self.root}/{i}.npy', x)",
        "np.save(self.paths[i], x)",
        "path = os.path.join(self.root, str(i))\ntorch.save(x, path)",
        "torch.save(x, f'{self.root}/{os.getpid()}')",
        "with tempfile.NamedTemporaryFile() as f:\n    np.save(f.name, x)",
        "if not os.path.exists(self.path):\n    np.save(self.path, x)",
        "open(self.path, 'w').close()",
        "with self.lock:\n    np.save(self.path, x)",
        "image.save(buffer)",
    ],
)
def test_a_file_of_its_own_or_made_once_is_fine(read: Read, body: str) -> None:
    init = "def __init__(self, root, path):\n    self.root, self.path = root, path\n"
    text = f"{HEAD}import os, tempfile\nclass Mine(Dataset):\n{textwrap.indent(init + getitem(body), '    ')}"
    assert seen(read(text), "writes-fixed-path") == []


# --- state

INIT = "def __init__(self):\n    self.bad, self.count, self.shared = [], 0, mp.Manager().list()\n"
NOTES = (
    INIT
    + getitem("self.bad.append(i)\nself.count += 1\nself.shared.append(i)")
    + "\ndef report(self):\n    return self.bad\n"
)
LOOP = "for x in loader:\n    pass\n"
MADE = "ds = Mine()\nloader = DataLoader(ds, num_workers=2)\n"


@pytest.mark.parametrize(
    ("after", "names"),
    [
        (f"{MADE}{LOOP}print(ds.bad)", {"self.bad"}),
        (f"{MADE}{LOOP}print(loader.dataset.count)", {"self.count"}),
        (f"{MADE}{LOOP}ds.report()", {"self.bad"}),
        (f"{MADE}for x in loader:\n    print(ds.count)", {"self.count"}),
        (f"{MADE}for e in range(2):\n    print(ds.bad)\n    for x in loader:\n        pass", {"self.bad"}),
        ("def f():\n    ds = Mine()\n    for x in DataLoader(ds):\n        pass\n    print(ds.bad)\nf()", {"self.bad"}),
    ],
)  # fmt: skip
def test_state_that_is_read_outside_is_seen_with_its_reader(read_dataset: Read, after: str, names: set[str]) -> None:
    sights = seen(read_dataset(NOTES, after), "changes-self")
    assert {sight.what for sight in sights} == {"self.bad", "self.count", "self.shared"}
    assert {sight.what for sight in sights if sight.also} == names


@pytest.mark.parametrize(
    "after",
    [
        f"{MADE}{LOOP}",
        f"{MADE}print(ds.bad)\n{LOOP}",
        f"{MADE}{LOOP}print(ds.shared)",
        f"{MADE}{LOOP}other = Mine()\nprint(other.bad)",
        f"{MADE}{LOOP}for x in ds:\n    pass\nprint(ds.bad)",
        f"{MADE}{LOOP}ds[0]\nprint(ds.bad)",
        f"{MADE}{LOOP}ds.bad = []",
    ],
)
def test_state_that_nobody_misses_has_no_reader(read_dataset: Read, after: str) -> None:
    assert [sight.what for sight in seen(read_dataset(NOTES, after), "changes-self") if sight.also] == []
