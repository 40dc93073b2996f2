"""Inside the target: an unmodified program, up to its first batch, and its loaders, tried out.

`sitecustomize` calls `examine_when_imported` at the start of every Python process of the target. The first process that
iterates a loader with workers is examined; all others run as they are.
"""

from __future__ import annotations

import os


def examine_when_imported() -> None:
    """Wait for torch; a process that never imports it is left alone."""
    from antifreeze.probes.target.first_iteration import catch_failures, hook_loaders  # noqa: PLC0415 - only in a target
    from antifreeze.probes.trials.record_files import EXAMINE  # noqa: PLC0415
    from antifreeze.whenimported import when_imported  # noqa: PLC0415

    directory = os.environ[EXAMINE]
    catch_failures(directory)
    when_imported(
        "torch",
        lambda _: when_imported("torch.utils.data.dataloader", lambda module: hook_loaders(module, directory)),
    )
