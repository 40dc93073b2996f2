"""What py-spy's refusal means, and the line that would let us in."""

import pytest

from antifreeze.machine import Rights
from antifreeze.probes.processes.rights import obstruction

DENIED = "Permission Denied: Try running again with elevated permissions"


def rights(
    *,
    is_same_user: bool = True,
    has_capability: bool = False,
    ptrace_scope: int | None = None,
    is_in_container: bool = False,
) -> Rights:
    return Rights(is_same_user, has_capability, ptrace_scope, is_in_container)


@pytest.mark.parametrize(
    ("ours", "why", "command"),
    [
        (rights(is_same_user=False), "another user", 'sudo -E "$(command -v antifreeze)" dump 7'),
        (rights(ptrace_scope=1), "only parents", "sudo sysctl kernel.yama.ptrace_scope=0"),
        (rights(ptrace_scope=2), "only root", 'sudo -E "$(command -v antifreeze)" dump 7'),
        (rights(ptrace_scope=3, is_in_container=True), "nobody", ""),
        (
            rights(is_in_container=True),
            "CAP_SYS_PTRACE is missing",
            "docker exec --privileged -u root CONTAINER antifreeze dump 7   (or: docker run --cap-add SYS_PTRACE …)",
        ),
    ],
)
def test_whatever_is_in_the_way_is_named_with_the_command_that_removes_it(ours: Rights, why: str, command: str) -> None:
    found = obstruction(DENIED, ours, 7)
    assert why in found.why
    assert found.command == command


@pytest.mark.parametrize(
    ("error", "why", "command"),
    [
        ("py-spy is not installed", "py-spy is not installed", "pip install py-spy"),
        ("Error: Failed to find python version from target process", "it is not a Python program", ""),
        ("py-spy did not answer within 4 s", "py-spy did not answer within 4 s", ""),
    ],
)
def test_what_is_not_a_question_of_rights_is_told_as_it_is(error: str, why: str, command: str) -> None:
    assert obstruction(error, rights(), 7) == (why, command)
