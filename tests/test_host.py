"""What is asked of the processor."""

import os

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
