from __future__ import annotations

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from warmpot._threads import one_thread


def counts() -> set[int]:
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}


@pytest.mark.parametrize("last", [0, 1])
def test_threads_are_given_back_when_the_last_of_several_has_ended(last: int) -> None:
    before = torch.get_num_threads()
    try:
        with threadpool_limits(2):
            torch.set_num_threads(2)
            both = [one_thread(), one_thread()]  # as fits in two threads of a server
            both.pop(1 - last).close()
            assert counts() == {1}
            both.pop().close()
            assert counts() == {2}
    finally:
        torch.set_num_threads(before)


def test_a_limit_that_failed_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(limits: int) -> None:
        raise RuntimeError("no libraries")

    before = torch.get_num_threads()
    try:
        with threadpool_limits(2):
            torch.set_num_threads(2)
            with monkeypatch.context() as patched:
                patched.setattr("warmpot._threads.threadpool_limits", fail)
                with pytest.raises(RuntimeError):
                    one_thread()
            with one_thread():
                assert counts() == {1}
            assert counts() == {2}
    finally:
        torch.set_num_threads(before)
