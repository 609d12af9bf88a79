"""What is asked of the processor, and memory that the system gets back."""

import os
import platform

import numpy as np
import pytest

from jaxops import host


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="other systems than Linux do not say it")
def test_cores_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 7})
    assert host.cores() == 2


def test_where_the_system_does_not_say_it_all_cores_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert host.cores() == 16
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert host.cores() == 1


def resident():
    """The bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep nothing, or have no such call")
def test_the_system_gets_back_what_is_free():
    blocks = [np.ones(8192) for _ in range(1500)]  # of 64 kB: malloc takes them from its heap
    last = blocks.pop()  # it holds the end of the heap, without which malloc would give back the rest by itself
    blocks.clear()
    before = resident()
    host.trim_heap()
    assert before - resident() > 64e6
    assert last.sum() == 8192
