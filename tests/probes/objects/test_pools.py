"""Native thread pools are told by the package that brought them, and whether their threads run."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from antifreeze.probes.objects.pools import package_of_file


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("/v/lib/python3.11/site-packages/scikit_learn.libs/libgomp-a34b3233.so.1.0.0", "sklearn"),
        ("/v/lib/python3.11/site-packages/torch/lib/libgomp.so.1", "torch"),
        ("/v/lib/python3.11/site-packages/numpy.libs/libscipy_openblas64_-ff651d7f.so", "numpy"),
        ("/v/lib/python3.11/site-packages/opencv_python_headless.libs/libopenblas.so", "cv2"),
        ("/usr/lib/x86_64-linux-gnu/libgomp.so.1", "libgomp.so.1"),
    ],
)
def test_the_package_is_known_by_the_path(path: str, package: str) -> None:
    assert package_of_file(path) == package


SCRIPT = """
import json, os, sys
os.environ.update(json.loads(sys.argv[1]))
exec(sys.argv[2])
from antifreeze.probes.objects.pools import native_pools
print(json.dumps([[p.library, p.kind, p.threads, p.is_used, p.why] for p in native_pools()]))
"""
FIT = "from sklearn.cluster import KMeans; KMeans(2, n_init=1).fit(np.random.rand(3000, 4))"
USE = "polars.DataFrame({'a': range(100)}).lazy().select(polars.col('a').sum()).collect()"


@pytest.fixture
def pools(run_script: Callable[..., Any]) -> Callable[..., dict[tuple[str, str], list[Any]]]:
    def ask(code: str, **environment: str) -> dict[tuple[str, str], list[Any]]:
        arguments = json.dumps({"OMP_NUM_THREADS": "2", **environment}), code
        ended = run_script(SCRIPT, *arguments).check()
        return {(library, kind): rest for library, kind, *rest in json.loads(ended.stdout)}

    return ask


def test_what_has_been_used_and_does_not_survive_a_fork_is_accused(pools: Callable[..., Any]) -> None:
    used = f"import numpy as np; {FIT}; import torch, tokenizers, cv2, polars; {USE}; cv2.setNumThreads(2)"
    found = pools(used, TOKENIZERS_PARALLELISM="true")
    threads, is_used, why = found["sklearn", "openmp"]
    assert (threads, is_used) == (2, True) and "waits for them for ever" in why
    assert found["torch", "openmp"][1] is not True
    threads, is_used, why = found["polars", "rayon"]
    assert threads >= 1 and is_used is True and "fork" in why
    assert "TOKENIZERS_PARALLELISM" in found["tokenizers", "rayon"][2]
    assert found["cv2", "opencv"] == [2, None, ""]


def test_what_uses_torchs_openmp_or_has_only_been_loaded_is_not(pools: Callable[..., Any]) -> None:
    found = pools(f"import torch, tokenizers, polars, numpy as np; {FIT}")
    assert found["torch", "openmp"][1] is True
    assert found["sklearn", "openmp"][1] is not True
    assert all(why == "" for _, _, why in found.values())
