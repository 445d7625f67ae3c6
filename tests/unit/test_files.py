"""Files: complete or absent, regular, of a limited size; every failure is one of our errors."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from warmpot import _files
from warmpot._files import (
    LOCK,
    atomic_folder,
    atomic_write,
    check_file,
    is_unused,
    locked,
    parse_json,
    read_csv,
    read_json,
    read_text,
    write_text,
)
from warmpot._run_files import is_run_file
from warmpot._yaml import parse_yaml, read_yaml
from warmpot.errors import InputError, WarmpotError

needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")


def test_a_full_disk_is_our_error_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("before")
    for context in (atomic_write(path), atomic_folder(tmp_path / "folder")):
        with pytest.raises(WarmpotError, match="No space left") as caught, context:
            raise OSError(errno.ENOSPC, "No space left on device")
        assert str(tmp_path) in caught.value.what
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    assert path.read_text() == "before"


def draft(folder: Path, process: int, machine: str | None = None) -> Path:
    path = folder / f".warmpot-{machine or _files._writer()}-{process}-0123abcd.tmp"
    path.write_text("half")
    return path


def test_drafts_of_killed_writers_are_removed_and_those_of_others_kept(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive, elsewhere = draft(tmp_path, ended.pid), draft(tmp_path, os.getpid()), draft(tmp_path, 1, "other")
    old, user = tmp_path / ".warmpot-5a7dc83e14e5955e.tmp", tmp_path / "mine.tmp"
    for path in (old, user):
        path.write_text("half")
        os.utime(path, times=(time.time() - 2 * _files.ABANDONED,) * 2)
    assert is_unused(tmp_path) is False
    write_text(tmp_path / "x", "new")
    known = _files._writer() != "unknown"  # else only old drafts are removed
    kept = {alive, elsewhere, user, tmp_path / "x"} | (set() if known else {dead})
    assert set(tmp_path.iterdir()) == kept


def test_a_folder_of_drafts_and_locks_is_unused(tmp_path: Path) -> None:
    assert is_unused(tmp_path / "new")
    draft(tmp_path, 1, "other")
    (tmp_path / LOCK).touch()
    assert is_unused(tmp_path)
    (tmp_path / "x").touch()
    assert not is_unused(tmp_path)
    assert not is_unused(tmp_path / "x")


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    first, second = (locked(tmp_path / LOCK, wait=False) for _ in range(2))
    with first, pytest.raises(InputError, match="another process"), second:
        pass
    with locked(tmp_path / LOCK, wait=False):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(WarmpotError, match="a path that can be written"), locked(tmp_path / "file" / LOCK, wait=True):
        pass


@needs_fifo
@pytest.mark.parametrize("read", [check_file, read_text, read_json, read_yaml])
def test_pipes_devices_and_folders_are_refused(tmp_path: Path, read: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path(os.devnull), "a device"), (tmp_path, "a directory")):
        with pytest.raises(InputError, match=kind):
            read(path)


DAMAGES = {
    "empty": b"",
    "binary": bytes(range(256)),
    "nested": b"[" * 20_000,
    "nested mappings": b'{"a": ' * 20_000,
    "digits": b"[" + b"9" * 5_000 + b"]",
    "many digits": b"[" + b"9" * 400 + b"]",
    "half": b'{"a": [1, 2',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_json_and_yaml(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(DAMAGES[damage])
    with pytest.raises(InputError, match="JSON"):
        read_json(path)
    if damage != "empty":  # of YAML, nothing
        with pytest.raises(InputError, match="YAML"):
            read_yaml(path)
    with pytest.raises(InputError, match="nothing"):
        read_json(tmp_path / "nothing")


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BOMB, "aliases written out"),
        ("a: &a [*a]", "aliases written out"),
        ("a: &a\n  b: *a", "aliases written out"),
        (f"a: &a {'y' * 1000}\nb: [{', '.join(['*a'] * 2000)}]", "aliases written out"),
        ("a: 0x" + "f" * 5000, "5002 characters"),
        ("a: " + ":".join("9" * 5000), "an integer of"),  # of base 60
        ("a: 2020-99-99", "month"),
        ("!!python/object/apply:os.system [ls]", "tag"),
        ("!!int ''", "YAML"),
        ("a: 1\n---\nb: 2", "another document"),
    ],
)
def test_yaml_that_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_yaml(text)


def test_large_yaml_is_not_even_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"")
    os.truncate(path, 10**12)  # has no blocks on disk
    with pytest.raises(InputError, match="bytes"):
        read_yaml(path)


def test_usual_yaml_and_json_are_read() -> None:
    text = "a: &a {x: 1, y: 2.5}\nb: {<<: *a, z: [0x1f, -3, null, true, 1e-3]}\nc: *a"
    first = {"x": 1, "y": 2.5}
    assert parse_yaml(text) == {"a": first, "b": {**first, "z": [31, -3, None, True, "1e-3"]}, "c": first}
    assert parse_json('{"a": [1, -2, 3.5, 1e400]}') == json.loads('{"a": [1, -2, 3.5, 1e400]}')


def test_csv_keeps_what_is_in_quotes_and_refuses_long_fields(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes('a,b\n"1\r\n2",\u2028\n'.encode())
    assert read_csv(path, errors="strict") == [["a", "b"], ["1\r\n2", "\u2028"]]
    path.write_text("x" * 200_000)
    with pytest.raises(InputError, match="field larger"):
        read_csv(path, errors="strict")


def test_names_of_run_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints" / "step-00000001").mkdir(parents=True)
    assert not is_run_file(run / "model.json")
    (run / "model.json").touch()
    for name in ("model.json", "config.yaml", "bound.json", "checkpoints/step-00000001/state.json", "figures/a.svg"):
        assert is_run_file(run / name), name
    for path in (run / "new.csv", tmp_path / "model.json", run / "other" / "model.json"):
        assert not is_run_file(path), path
    (tmp_path / "link.csv").symlink_to(run / "model.json")
    assert is_run_file(tmp_path / "link.csv")
