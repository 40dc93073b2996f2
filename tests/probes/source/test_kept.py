"""Batches that outlive their loop, and what only looks like it."""

import textwrap

import pytest

from .conftest import HEAD, Read


def kept(read: Read, body: str, *, before: str = "kept = []") -> list[int]:
    text = f"{HEAD}{before}\nfor i, batch in enumerate(DataLoader(ds, num_workers=2)):\n{textwrap.indent(body, '    ')}"
    (loop,) = read(text).loops
    return [place.line - 7 for place in loop.kept]


@pytest.mark.parametrize(
    "body",
    [
        "kept.append(batch)",
        "kept.append(batch['x'])",
        "kept.append(batch[0].numpy())",
        "kept.append(batch.x.detach().cpu())",
        "kept.extend(batch)",
        "kept.insert(0, batch)",
        "kept.append((i, batch))",
        "kept += [batch]",
        "x, y = batch; kept.append(y)",
        "x = batch['x']; kept.append(x.view(-1))",
        "for key, value in batch.items(): kept.append(value)",
        "kept.append([each for each in batch])",
    ],
)
def test_a_batch_in_a_list_is_kept(read: Read, body: str) -> None:
    assert kept(read, body) == [1]


def test_a_batch_in_a_dict_is_kept(read: Read) -> None:
    assert kept(read, "kept[i] = batch", before="kept = {}") == [1]


@pytest.mark.parametrize("text", ["list(DataLoader(ds))", "[b for b in DataLoader(ds)]"])
def test_all_batches_in_a_list_are_kept(read: Read, text: str) -> None:
    (loop,) = read(f"{HEAD}batches = {text}").loops
    assert len(loop.kept) == 1


@pytest.mark.parametrize(
    "body",
    [
        "kept.append(i)",
        "kept.append(batch.clone())",
        "kept.append(batch['x'].detach().cpu().clone())",
        "kept.append(batch.numpy().copy())",
        "kept.append(np.array(batch))",
        "kept.append(batch.item())",
        "kept.extend(batch.tolist())",
        "kept.append(float(batch))",
        "kept.append(batch.mean())",
        "kept.append(batch * 2)",
        "kept.append(model(batch))",
        "kept.append(batch.shape)",
        "batch = batch.to(device); kept.append(batch)",
        "x, y = (each.cuda() for each in batch); kept.append(x)",
        "kept.append(batch); kept.clear()",
        "kept.append(batch)\nif len(kept) > 3: kept.pop(0)",
        "kept = []; kept.append(batch)",
        "inner = []; inner.append(batch)",
        "batch['extra'] = batch['x']",
        "for key, value in batch.items(): kept.append(key)",
        "for one, other in zip(batch.tolist(), batch): kept.append(one)",
        "kept.append([each.item() for each in batch])",
    ],
)
def test_a_copy_is_not_kept(read: Read, body: str) -> None:
    assert kept(read, body) == []


@pytest.mark.parametrize(
    "before", ["import collections\nkept = collections.deque(maxlen=2)", "kept = Metric()", "kept = np.zeros(9)", ""]
)
def test_what_is_no_list_keeps_nothing_that_we_know_of(read: Read, before: str) -> None:
    text = f"{HEAD}{before}\nfor batch in DataLoader(ds):\n    kept.append(batch)"
    (loop,) = read(text).loops
    assert loop.kept == ()


def keeps_all(read: Read, head: str, body: str) -> bool:
    text = f"{HEAD}kept, others = [], []\nfor {head}:\n{textwrap.indent(body, '    ')}"
    (loop,) = read(text).loops
    assert loop.kept
    return loop.keeps_all


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("batch in DataLoader(ds)", "kept.append(batch)"),
        ("i, batch in enumerate(DataLoader(ds))", "kept.append((i, batch))"),
        ("x, y in DataLoader(ds)", "kept.append(x.numpy())\nothers.append(y)"),
        ("batch in DataLoader(ds)", "x, y = batch\nkept.append((x, y))"),
        ("batch in DataLoader(ds)", "for sample in batch: kept.append(sample)"),
    ],
)
def test_all_parts_of_a_batch_are_all_of_it(read: Read, head: str, body: str) -> None:
    assert keeps_all(read, head, body)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("batch in DataLoader(ds)", "kept.append(batch['label'])"),
        ("x, y in DataLoader(ds)", "kept.append(y)"),
        ("batch in DataLoader(ds)", "x, y = batch\nkept.append(y)"),
        ("x, y in DataLoader(ds)", "x = model(x)\nkept.append(x)\nothers.append(y)"),
        ("batch in DataLoader(ds)", "kept.append({k: v for k, v in batch.items() if k != 'image'})"),
    ],
)
def test_a_part_of_a_batch_is_not_all_of_it(read: Read, head: str, body: str) -> None:
    assert not keeps_all(read, head, body)
