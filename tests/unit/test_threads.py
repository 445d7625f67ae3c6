from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from warmpot._threads import one_thread


def counts() -> set[int]:
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}


@pytest.mark.parametrize("last", ["caller", "worker"])
def test_threads_are_given_back_when_the_last_of_several_has_ended(last: str) -> None:
    """As of fits in two threads of a server."""
    before = torch.get_num_threads()
    try:
        with threadpool_limits(2), ThreadPoolExecutor(1) as worker:
            torch.set_num_threads(2)
            here, there = one_thread(), worker.submit(one_thread).result()
            assert counts() == {1}
            if last == "caller":
                worker.submit(there.close).result()
                assert counts() == {1}
            here.close()
            worker.submit(there.close).result()
            assert counts() == {2}
    finally:
        torch.set_num_threads(before)
