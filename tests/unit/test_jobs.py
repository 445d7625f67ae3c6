"""Jobs here, in processes and on Ray: outcomes, deaths, threads, ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from warmpot._jobs import Done, Failed, Job, runner
from warmpot.errors import InputError, MissingExtraError

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

WORK = '''
import os, signal, subprocess
from pathlib import Path


class Awkward(ValueError):
    def __init__(self, *, what):  # cannot be unpickled
        super().__init__(f"awkward {what}")


def times(factor, x):
    return factor * x


def dies(folder, x, deaths):
    """Leave a trace of every attempt; the first ones die."""
    with open(Path(folder) / "ran", "a") as stream:
        stream.write(f"{x}\\\\n")
    with open(Path(folder) / "ran") as stream:
        if stream.read().split().count(str(x)) <= deaths:
            os.kill(os.getpid(), signal.SIGKILL)
    return 10 * x


def fails(shared, x):
    if x == 1:
        raise Awkward(what=x)
    if x == 2:
        raise SystemExit("enough")
    return (lambda: x) if x == 3 else x


def product(seed, size):
    import numpy as np
    from threadpoolctl import threadpool_info

    x = np.random.default_rng(seed).normal(size=(size, size)).astype("float32")
    return (x @ x).tobytes(), {pool["num_threads"] for pool in threadpool_info()}


def add_up(array, x):
    array += x  # every worker has its own, and may write to it
    return float(array[0]) >= x


def mask(shared):
    return sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))


def lasts(shared):
    child = subprocess.Popen(["sleep", "1000"])  # of the same output: its end shows that it is gone
    os.write(1, b"runs\\\\n")  # at once: two workers write to one pipe
    child.wait()
'''.replace("\\\\n", "\\n")


@pytest.fixture(scope="module")
def work(tmp_path_factory: Any) -> Iterator[Any]:
    """Return a module that workers, those of Ray too, can import."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "jobs_work.py").write_text(WORK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        patch.syspath_prepend(str(folder))
        import jobs_work

        yield jobs_work
        del sys.modules["jobs_work"]


@pytest.fixture(scope="module")
def on_ray(work: Any) -> Iterator[dict[str, Any]]:
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'warmpot[ray]'")
    from warmpot._jobs.ray import connect

    connect(ray, "local", 2)
    yield {"ray_address": "local", "workers": 2}
    ray.shutdown()


Made = Callable[..., Any]


@pytest.fixture(params=["here", "processes", "ray"])
def made(request: Any) -> Made:
    ways = {"here": {"workers": 1}, "processes": {"workers": 2}}
    way = request.getfixturevalue("on_ray") if request.param == "ray" else ways[request.param]
    return lambda function, shared=None, **more: runner(function, shared, **{**way, **more})


apart = [pytest.param("processes", marks=posix), "ray"]


def all_of(run: Any, jobs: Any) -> dict[Any, Any]:
    return {outcome.key: outcome for outcome in run(jobs)}


def test_results_come_with_their_keys_and_a_runner_can_be_used_again(made: Made, work: Any) -> None:
    with made(work.times, 3) as run:
        assert all_of(run, [Job(f"job {x}", (x,)) for x in range(5)]) == {
            f"job {x}": Done(f"job {x}", 3 * x) for x in range(5)
        }
        left = run([Job("a", (1,)), Job("b", (2,)), Job("c", (3,))])
        next(left)
        left.close()
        assert all_of(run, [Job(0, (5,)), Job(1, (6,))]) == {0: Done(0, 15), 1: Done(1, 18)}
        assert list(run([])) == []


def test_the_next_job_is_asked_for_when_a_worker_is_free_and_the_outcomes_are_seen(made: Made, work: Any) -> None:
    seen: list[int] = []

    def jobs() -> Iterator[Job]:
        for x in range(6):
            assert x - len(seen) < run.workers
            yield Job(x, (x,))

    with made(work.times, 1) as run:
        for outcome in run(jobs()):
            seen.append(outcome.key)  # noqa: PERF401 - one by one
    assert sorted(seen) == list(range(6))


def test_what_is_raised_keeps_its_type_and_text_and_the_rest_goes_on(made: Made, work: Any) -> None:
    with made(work.fails) as run:
        found = all_of(run, [Job(x, (x,)) for x in range(5)])
    assert (found[0], found[4]) == (Done(0, 0), Done(4, 4))
    assert str(found[1]) == "Awkward: awkward 1"
    assert "in fails" in found[1].trace
    assert (found[1].attempts, found[1].kind) == (1, "Awkward")
    assert (found[2].kind, found[2].text) == ("SystemExit", "enough")
    if run.pool.__class__.__name__ != "InProcess":  # there, it can stay a function
        assert "lambda" in found[3].text or "pickle" in found[3].text


@pytest.mark.parametrize("made", apart, indirect=True)
def test_a_worker_that_is_killed_is_replaced_and_only_its_job_is_run_again(
    made: Made, work: Any, tmp_path: Path
) -> None:
    with made(work.dies, str(tmp_path)) as run:
        found = all_of(run, [Job(x, (x, 1 if x == 2 else 0)) for x in range(6)])
    assert found == {x: Done(x, 10 * x, 2 if x == 2 else 1) for x in range(6)}
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "1", "2", "2", "3", "4", "5"]


@pytest.mark.parametrize("made", apart, indirect=True)
def test_a_job_that_always_dies_is_told_and_the_rest_is_done(made: Made, work: Any, tmp_path: Path) -> None:
    with made(work.dies, str(tmp_path), retries=1) as run:
        found = all_of(run, [Job(x, (x, 99 if x == 0 else 0)) for x in range(3)])
    assert [found[x] for x in (1, 2)] == [Done(1, 10), Done(2, 20)]
    assert isinstance(found[0], Failed)
    assert (found[0].kind, found[0].attempts) == ("WorkerDied", 2)
    assert found[0].text.startswith("the worker ")
    assert found[0].text.endswith(", in each of 2 attempts")
    if run.pool.__class__.__name__ == "LocalProcesses":
        assert "was killed by SIGKILL (out of memory?)" in found[0].text
    assert (tmp_path / "ran").read_text().split().count("0") == 2


def test_a_result_is_the_same_everywhere_to_the_last_bit(made: Made, work: Any) -> None:
    with runner(work.product, 0) as run:
        [here] = run([Job(0, (257,))])
    with made(work.product, 0) as run:
        [found] = run([Job(0, (257,))])
    assert found == here
    assert found.value[1] <= {1}


def test_threads_are_given_back(work: Any) -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with runner(work.times, 1) as run:
            assert torch.get_num_threads() == 1
            list(run([Job(0, (1,))]))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_workers_may_write_to_their_copy_of_what_is_shared(made: Made, work: Any) -> None:
    import numpy as np

    with made(work.add_up, np.zeros(100_000)) as run:
        assert all(outcome.value is True for outcome in run([Job(x, (x,)) for x in range(4)]))


def test_ray_is_an_extra(work: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtraError, match=r"pip install 'warmpot\[ray\]'"),
        runner(work.times, ray_address="auto"),
    ):
        pass


def test_a_cluster_that_is_not_there_is_told_at_once(work: Any, monkeypatch: Any) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda *args, **more: pytest.fail("Ray waits for minutes"))
    with pytest.raises(InputError, match=r"127\.0\.0\.1:1.*ray start"), runner(work.times, ray_address="127.0.0.1:1"):
        pass


BEGIN = "import signal\nimport jobs_work\nfrom warmpot._jobs import Job, runner\n"
LASTS = """
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell start with it ignored
    with runner(jobs_work.lasts, workers=2) as run:
        list(run([Job(0), Job(1)]))
"""


def script(folder: Path, text: str) -> list[str]:
    (folder / "script.py").write_text(BEGIN + text)
    return [sys.executable, str(folder / "script.py")]


@posix
def test_signals_are_for_the_parent_from_the_start_of_a_worker(work: Any, tmp_path: Path) -> None:
    """In a process of its own, whose first worker also starts the resource tracker of multiprocessing."""
    masks = "if __name__ == '__main__':\n    with runner(jobs_work.mask, workers=2) as run:\n"
    masks += "        print([[int(number) for number in outcome.value] for outcome in run([Job(0), Job(1)])])\n"
    done = subprocess.run(script(tmp_path, masks), capture_output=True, text=True, check=False)
    assert done.stdout == "[[2, 15], [2, 15]]\n", done.stderr


@posix
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_and_what_they_started_end_with_their_parent(work: Any, tmp_path: Path, how: signal.Signals) -> None:
    with subprocess.Popen(
        script(tmp_path, LASTS), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert [process.stdout.readline(), process.stdout.readline()] == ["runs\n"] * 2  # type: ignore[union-attr]
            if how is signal.SIGINT:
                os.killpg(process.pid, how)  # as a terminal does
            else:
                process.send_signal(how)
            _, said = process.communicate()  # to the end of the output: nobody holds it any more
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -how
    assert said.count("Traceback") == (how is signal.SIGINT), said  # the parent's, none of a worker


def test_a_script_without_guard_is_told_and_a_good_one_loads_nothing_heavy(work: Any, tmp_path: Path) -> None:
    tries = "with runner(jobs_work.times, 2, workers=2, retries=0) as run:\n"
    tries += "    print([outcome.value for outcome in run([Job(0, (4,))])])\n"
    bad = subprocess.run(script(tmp_path, tries), capture_output=True, text=True, check=False)
    assert "worker process: got one that ended with exit code 1;" in bad.stderr
    assert bad.stderr.strip().endswith("guard what starts it: if __name__ == '__main__':")
    guarded = "import sys\nif __name__ == '__main__':\n    " + tries.replace("\n", "\n    ")
    guarded += "\n    print({'torch', 'numpy', 'ray'} & set(sys.modules))"
    good = subprocess.run(script(tmp_path, guarded), capture_output=True, text=True, check=False)
    assert good.stdout.splitlines() == ["[8]", "set()"], good.stderr
