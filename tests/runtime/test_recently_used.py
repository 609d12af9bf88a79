"""Programs of the sizes that were used last are kept; what is called often is never compiled again."""

import copy
import pickle
import threading

import numpy as np
import pytest
from graphs import model

from jaxops.onnx import load
from jaxops.runtime.recently_used import RecentlyUsed
from jaxops.runtime.specialized_calls import SpecializedCalls

TEXT = "main (float[n] x) => (float[n] y) { a = Mul(x, w) y = Tanh(a) }"


@pytest.fixture
def compiled(monkeypatch):
    """The sizes that were compiled. Dictionaries keep 8 entries, not 128."""
    sizes, plain, init = list[int](), SpecializedCalls._specialized, RecentlyUsed.__init__
    monkeypatch.setattr(RecentlyUsed, "__init__", lambda self, most=128: init(self, most // 16))

    def count(self, cache, static, inputs, rng, leaves, entry):
        sizes.append(leaves[0].shape[0])
        return plain(self, cache, static, inputs, rng, leaves, entry)

    monkeypatch.setattr(SpecializedCalls, "_specialized", count)
    return sizes


def ones(size):
    return np.ones(size, np.float32)


def test_programs_of_many_sizes_have_a_bound(compiled):
    found = load(model(TEXT, initializers={"w": np.float32(1)}), static=[])
    for size in range(1, 21):
        np.testing.assert_allclose(found(ones(size)), np.tanh(ones(size)), rtol=1e-6)
        found(ones(1))  # called often
    assert compiled == list(range(1, 21))
    cache = found._weights.cache
    of_params = cache.executables, cache.fast_calls
    assert [len(each) for each in (*of_params, found._function.runner.specialized.programs)] == [8] * 3
    found(ones(20))
    found(ones(16))
    assert len(compiled) == 20
    found(ones(2))  # compiled again
    assert compiled[20:] == [2]


def test_entries():
    found = RecentlyUsed(2)
    found["a"] = 1
    found["b"] = 2
    assert found["a"] == 1  # no use
    found["c"] = 3
    assert list(found.items()) == [("b", 2), ("c", 3)]
    assert found.used("b") == 2
    assert found.used("a", 7) == 7
    found["d"] = None
    assert list(found) == ["b", "d"]
    assert found.used("d", 7) is None
    found["b"] = 5  # set again: the newest
    found["e"] = 6
    assert list(found.items()) == [("b", 5), ("e", 6)]


def test_threads():
    found, errors = RecentlyUsed(16), list[Exception]()

    def use(start):
        try:
            for k in range(20_000):
                key = (start * k) % 50
                found[key] = key
                assert found.used(key - 1, key - 1) == key - 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(start,)) for start in (1, 3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(found) == 16


def test_a_copy_is_empty():
    found = RecentlyUsed(2)
    found["a"] = 1
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert not again
        again.update({"x": 1, "y": 2, "z": 3})
        assert list(again) == ["y", "z"]
