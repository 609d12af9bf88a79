"""Compiled programs that the next process finds again."""

import dataclasses
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model
from jax.experimental.compilation_cache import compilation_cache

import jaxops.onnx
from jaxops.command_line import main
from jaxops.errors import ArgumentError, TooLargeError
from jaxops.runtime import disk_cache
from jaxops.runtime.specialized_calls import SpecializedCalls

TEXT = "main (float[n] x) => (float[n] y) { z = Exp(x) y = Add(z, x) }"
# Its weights are prepared: the filter in another layout, and 1/sqrt(variance + epsilon).
WEIGHTED = """main (float[n,3,s,s] x) => (float[n,8,s,s] y, int64[4] z)
    { c = Conv<pads=[1,1,1,1]>(x, w) d = BatchNormalization(c, scale, shift, mean, var) y = Relu(d) z = Shape(y) }"""
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 9, 9), np.float32)
CHILD = """
import sys, jax, numpy as np, jaxops.onnx
hits, seconds = [], []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
jax.monitoring.register_event_duration_secs_listener(lambda event, _, **__: seconds.append(event.split("/")[-1]))
given, x = open(sys.argv[1], "rb").read(), np.zeros([int(size) for size in sys.argv[3:]], np.float32)
found = jaxops.onnx.load(given, cache=sys.argv[2])(x)
print(np.asarray(found[0]).ravel()[:3].tolist(), len(hits), "jaxpr_trace_duration" in seconds)
"""


def weights():
    found = {name: RNG.random(8, np.float32) + 0.5 for name in ("scale", "shift", "mean", "var")}
    return {"w": RNG.standard_normal((8, 3, 3, 3), np.float32), **found}


@pytest.fixture(autouse=True)
def _as_before():
    """The cache belongs to the process."""
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = {name: getattr(jax.config, name) for name in names}
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def message(record):
    """A line of the log without the path of the file."""
    assert (record.name, record.levelname) == ("jaxops", "WARNING")
    return record.getMessage().split("-program' ", 1)[1]


def in_a_process(file, folder, *sizes):
    """What CHILD prints: the first numbers, how many programs it found in JAX's cache, and whether it traced."""
    command = [sys.executable, "-c", CHILD, str(file), str(folder), *map(str, sizes)]
    done = subprocess.run(command, text=True, capture_output=True, check=True, env={**os.environ, "XLA_FLAGS": ""})
    return done.stdout.replace("[", "").replace("]", "").replace(",", " ").split()


def test_a_second_process_compiles_nothing(tmp_path):
    file, folder = tmp_path / "m.onnx", tmp_path / "programs"
    file.write_bytes(model(TEXT).SerializeToString())
    printed = [in_a_process(file, folder, 3) for _ in range(2)]
    assert printed[0][:1] == printed[1][:1] == ["1.0"]
    assert int(printed[0][1]) == 0
    assert int(printed[1][1]) == len(list(folder.glob("*-cache"))) > 0


def test_one_folder_a_process(tmp_path):
    jaxops.onnx.load(model(TEXT), cache=tmp_path)
    jaxops.onnx.load(model(TEXT), cache=os.fspath(tmp_path) + "/")
    with pytest.raises(ArgumentError, match=r"JAX keeps compiled programs in '.*' already.*one such folder"):
        jaxops.onnx.load(model(TEXT), cache=tmp_path / "other")


def test_run_keeps_programs_in_the_folder(tmp_path):
    (tmp_path / "m.onnx").write_bytes(model(TEXT).SerializeToString())
    for _ in range(2):
        arguments = ["--size=n=2", "--repeat=1", f"--cache={tmp_path / 'programs'}"]
        assert main(["run", str(tmp_path / "m.onnx"), *arguments]) == 0
        assert list((tmp_path / "programs").glob("*-cache"))


@pytest.mark.skipif(not disk_cache.processor_features(), reason="the processor is known on Linux only")
class TestOfModels:
    """In one process: a second model finds what the first has kept."""

    @pytest.fixture(autouse=True)
    def _one_device(self, monkeypatch):
        monkeypatch.setattr(jax, "device_count", lambda: 1)

    @pytest.fixture
    def traced(self, monkeypatch):
        """How often a program was traced."""
        found, plain = [], SpecializedCalls._specialized
        monkeypatch.setattr(
            SpecializedCalls, "_specialized", lambda self, *of: found.append(plain(self, *of)) or found[-1]
        )
        return found

    @pytest.fixture
    def proto(self):
        return model(WEIGHTED, initializers=weights())

    def test_a_second_process_traces_nothing(self, tmp_path, proto):
        (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
        first, second = (in_a_process(tmp_path / "m.onnx", tmp_path / "programs", *X.shape) for _ in range(2))
        assert first[:3] == second[:3]
        assert (first[-1], second[-1]) == ("True", "False")
        assert len(list((tmp_path / "programs").glob("*-program"))) == 1

    def test_it_computes_the_same(self, tmp_path, proto, traced):
        plain = jaxops.onnx.load(proto)(X)
        first, second = (jaxops.onnx.load(proto, cache=tmp_path) for _ in range(2))
        for found in (first(X), second(X), second(jnp.asarray(X)), second(X)):
            assert type(found).__name__ == type(plain).__name__
            np.testing.assert_array_equal(found.y, plain.y)
            assert isinstance(found.z, np.ndarray)
            assert found.z.tolist() == [2, 8, 9, 9]
        assert len(traced) == 2  # by the model without a cache, and by the first with one
        assert str(second).splitlines()[-1] == str(first).splitlines()[-1]
        assert "prepared  5 values" in str(second)

    def test_a_program_of_equal_layers(self, tmp_path, traced, cut_however_short):
        """Its parts are kept; the first of the equal ones takes data in another layout than the next."""
        names = [f"w{k}" for k in range(9)]
        text = " ".join(f"c{k} = Conv<pads=[1,1,1,1]>(h{k}, {w}) h{k + 1} = Relu(c{k})" for k, w in enumerate(names))
        proto = model(
            f"main (float[1,8,8,8] x) => (float[a,b,c,d] y) {{ h0 = Tanh(x) {text} y = Tanh(h9) }}",
            initializers={name: RNG.standard_normal((8, 8, 3, 3), np.float32) / 8 for name in names},
        )
        x = RNG.standard_normal((1, 8, 8, 8), np.float32)
        plain = jaxops.onnx.load(proto)
        found = [jaxops.onnx.load(proto, cache=tmp_path)(x) for _ in range(2)]
        assert [len(program.run.segments) for program in traced] == [6]
        np.testing.assert_allclose(found[0], jax.jit(plain.apply)(plain.params, x), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found[0], found[1])

    def test_a_program_that_takes_too_much_is_not_kept(self, tmp_path):
        proto = model("main (float[n] x) => (float[n] y, float[n] z) { y = Exp(x) z = Exp(y) }")
        x = np.zeros(1 << 10, np.float32)
        for _ in range(2):
            with pytest.raises(TooLargeError, match=r"values that one call holds together, .* take 8 KiB"):
                jaxops.onnx.load(proto, cache=tmp_path, max_bytes=5000)(x)
        assert list(tmp_path.glob("*-program")) == []

    def test_weights_are_not_kept(self, tmp_path, proto, traced):
        other = model(WEIGHTED, initializers=weights())
        jaxops.onnx.load(proto, cache=tmp_path)(X)
        found = jaxops.onnx.load(other, cache=tmp_path)(X)
        assert len(traced) == 1
        np.testing.assert_array_equal(found.y, jaxops.onnx.load(other)(X).y)

    def test_other_sizes_share_what_is_prepared(self, tmp_path, proto, traced):
        jaxops.onnx.load(proto, cache=tmp_path)(X)
        found = jaxops.onnx.load(proto, cache=tmp_path)
        found(X)
        kept = {id(x) for x in found._weights.cache.prepared.values()}
        assert len(traced) == 1
        assert found(X[:1]).y.shape == (1, 8, 9, 9)  # traced, and kept in turn
        assert len(traced) == 2
        assert {id(x) for x in found._weights.cache.prepared.values()} == kept

    @pytest.mark.parametrize(
        "text",
        [
            WEIGHTED.replace("Relu", "Exp"),
            WEIGHTED.replace("pads=[1,1,1,1]", 'auto_pad="SAME_LOWER"'),
            WEIGHTED.replace("mean, var", "var, mean"),
        ],
    )
    def test_another_model_is_another_program(self, tmp_path, proto, text, traced):
        jaxops.onnx.load(proto, cache=tmp_path)(X)
        other = model(text, initializers=weights())
        np.testing.assert_array_equal(jaxops.onnx.load(other, cache=tmp_path)(X).y, jaxops.onnx.load(other)(X).y)
        assert len(traced) == 3

    def test_static_values_are_a_part_of_it(self, tmp_path, traced):
        text = "main (float[4] x, int64[2] s) => (float[a,b] y) { z = Exp(x) m = Mul(z, w) y = Reshape(m, s) }"
        proto = model(text, initializers={"w": np.full(4, 2, np.float32)})
        x = np.zeros(4, np.float32)
        for _ in range(2):
            found = jaxops.onnx.load(proto, cache=tmp_path)
            assert [found(x, np.array(s)).shape for s in ([2, 2], [4, 1])] == [(2, 2), (4, 1)]
        assert len(traced) == 2

    def test_other_code_is_another_program(self, tmp_path, proto, traced, monkeypatch):
        jaxops.onnx.load(proto, cache=tmp_path)(X)
        monkeypatch.setattr(disk_cache, "_process", lambda: ("another version",))
        jaxops.onnx.load(proto, cache=tmp_path)(X)
        assert len(traced) == 2

    def test_a_changed_file_of_the_package_shows(self, monkeypatch):
        before, stat = disk_cache._process.__wrapped__(), os.stat
        assert os.fspath(Path(jaxops.__file__).parent) not in str(before)  # the same, wherever it is installed
        changed = dataclasses.make_dataclass("Changed", ["st_size", "st_mtime_ns"])

        def other(path, *args, **kwargs):
            found = stat(path, *args, **kwargs)
            return (
                changed(found.st_size, found.st_mtime_ns + 1) if str(path).endswith("convolution_checks.py") else found
            )

        monkeypatch.setattr(os, "stat", other)
        assert disk_cache._process.__wrapped__() != before

    def test_settings_of_jax_are_looked_at_in_each_call(self, tmp_path, proto, traced):
        jaxops.onnx.load(proto, cache=tmp_path)(X)
        found = jaxops.onnx.load(proto, cache=tmp_path)
        expected = found(X)
        with jax.default_matmul_precision("high"):
            np.testing.assert_allclose(found(X).y, expected.y, rtol=1e-5, atol=1e-5)
        assert len(traced) == 2
        np.testing.assert_array_equal(found(X).y, expected.y)
        assert len(traced) == 2

    def test_nan_is_looked_for(self, tmp_path, proto):
        x = np.full_like(X, np.nan)
        assert np.isnan(jaxops.onnx.load(proto, cache=tmp_path)(x).y).any()
        found = jaxops.onnx.load(proto, cache=tmp_path)
        for _ in range(2):
            with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
                found(x)
            assert np.isnan(found(x).y).any()

    def test_programs_that_call_lapack_are_compiled(self, tmp_path, traced):
        text = "main (float[9,9] x) => (float y) { z = MatMul(x, w) y = Det(z) }"
        proto = model(text, initializers={"w": np.eye(9, dtype=np.float32) * 2})
        for _ in range(2):
            np.testing.assert_allclose(jaxops.onnx.load(proto, cache=tmp_path)(np.eye(9, dtype=np.float32)), 512)
        assert len(traced) == 2
        assert not list(tmp_path.glob("*-program"))

    def test_operators_of_a_caller_are_compiled(self, tmp_path, traced):
        text = "main (float[3] x) => (float[3] y) { z = Mul(x, w) y = my.Op(z) }"
        proto = model(text, imports=', "my" : 1', initializers={"w": np.full(3, 2, np.float32)})
        for factor in (1, 2):
            operators = {("my", "Op"): lambda x, factor=factor: x * factor}
            found = jaxops.onnx.load(proto, cache=tmp_path, operators=operators)(np.ones(3, np.float32))
            assert found.tolist() == [2 * factor] * 3
        assert len(traced) == 2

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data[:-9],
            lambda data: data[:60] + b"?" + data[61:],
            lambda data: data + b"?",
            lambda data: b"?" * 7,
            lambda _: b"",
        ],
    )
    def test_a_damaged_file_is_written_again(self, tmp_path, proto, traced, damage, caplog):
        expected = jaxops.onnx.load(proto, cache=tmp_path)(X)
        [file] = tmp_path.glob("*-program")
        file.write_bytes(damage(file.read_bytes()))
        np.testing.assert_array_equal(jaxops.onnx.load(proto, cache=tmp_path)(X).y, expected.y)
        assert len(traced) == 2
        assert len(file.read_bytes()) > 1000
        jaxops.onnx.load(proto, cache=tmp_path)(X)
        assert len(traced) == 2
        assert [message(record) for record in caplog.records] == [
            "is damaged or was written for another program, so the model is compiled"
        ]

    def test_a_file_of_another_program_is_written_again(self, tmp_path, proto, traced, caplog):
        other = model(WEIGHTED.replace("Relu", "Exp"), initializers=weights())
        protos = proto, other
        expected = [jaxops.onnx.load(each, cache=tmp_path)(X).y for each in protos]
        one, two = tmp_path.glob("*-program")
        contents = one.read_bytes(), two.read_bytes()
        one.write_bytes(contents[1])
        two.write_bytes(contents[0])
        for _ in range(2):
            for each, y in zip(protos, expected, strict=True):
                np.testing.assert_array_equal(jaxops.onnx.load(each, cache=tmp_path)(X).y, y)
        assert len(traced) == 4
        assert ["another program" in record.message for record in caplog.records] == [True] * 2

    def test_files_that_cannot_be_read_or_written(self, tmp_path, proto, caplog):
        expected = jaxops.onnx.load(proto, cache=tmp_path)(X)
        [file] = tmp_path.glob("*-program")
        file.unlink()
        file.mkdir()
        np.testing.assert_array_equal(jaxops.onnx.load(proto, cache=tmp_path)(X).y, expected.y)
        read, written = map(message, caplog.records)
        assert read.startswith("cannot be read, so the model is compiled:")
        assert written.startswith("cannot be written:")
        assert os.listdir(tmp_path) == [file.name]

    def test_a_folder_that_may_not_be_written(self, tmp_path, proto, caplog, monkeypatch):
        plain = jaxops.onnx.load(proto)(X)

        def refused(*_):
            raise PermissionError("Permission denied")

        monkeypatch.setattr(Path, "write_bytes", refused)
        for _ in range(2):
            np.testing.assert_array_equal(jaxops.onnx.load(proto, cache=tmp_path)(X).y, plain.y)
        assert [message(record) for record in caplog.records] == ["cannot be written: Permission denied"] * 2
        assert not list(tmp_path.iterdir())

    def test_what_xla_does_not_load(self, tmp_path, proto, monkeypatch, caplog):
        expected = jaxops.onnx.load(proto, cache=tmp_path)(X)
        [file] = tmp_path.glob("*-program")
        before = file.stat().st_ino

        def refused(*_, **__):
            raise jax.errors.JaxRuntimeError("of another version")

        monkeypatch.setattr(disk_cache, "deserialize_and_load", refused)
        np.testing.assert_array_equal(jaxops.onnx.load(proto, cache=tmp_path)(X).y, expected.y)
        assert list(map(message, caplog.records)) == ["cannot be loaded, so the model is compiled: of another version"]
        assert file.stat().st_ino != before

    def test_a_model_is_loaded_while_another_thread_compiles(self, tmp_path, proto, monkeypatch):
        """The folder stays good: JAX must not keep a program that is stored here, since XLA writes what it read from
        there without some functions."""
        plain, expected = jax.stages.Lowered.compile, jaxops.onnx.load(proto)(X).y

        def compile(*args, **kwargs):
            loading = threading.Thread(target=jaxops.onnx.load, args=(proto,), kwargs={"cache": tmp_path})
            loading.start()
            loading.join()
            return plain(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(jax.stages.Lowered, "compile", compile)
            jaxops.onnx.load(proto, cache=tmp_path)(X)
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 0
        [file] = tmp_path.glob("*-program")
        file.unlink()
        for _ in range(2):  # compiled again and written, then read
            np.testing.assert_array_equal(jaxops.onnx.load(proto, cache=tmp_path)(X).y, expected)

    def test_threads_share_a_folder(self, tmp_path, proto, traced):
        expected = jaxops.onnx.load(proto)(X).y

        def call():
            for _ in range(2):
                found = jaxops.onnx.load(proto, cache=tmp_path)
                for _ in range(2):
                    np.testing.assert_array_equal(found(X).y, expected)

        with ThreadPoolExecutor(4) as executor:
            for each in [executor.submit(call) for _ in range(4)]:
                each.result()
            count = len(traced)
            executor.submit(call).result()
        assert len(traced) == count
        assert len(list(tmp_path.glob("*-program"))) == 1
        assert not list(tmp_path.glob("jit_stored*"))

    def test_processes_share_a_folder(self, tmp_path, proto):
        (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
        arguments = tmp_path / "m.onnx", tmp_path / "programs", *X.shape
        with ThreadPoolExecutor(2) as executor:
            printed = [f.result() for f in [executor.submit(in_a_process, *arguments) for _ in range(2)]]
        printed.append(in_a_process(*arguments))
        assert len({tuple(each[:3]) for each in printed}) == 1
        assert printed[-1][-1] == "False"
        assert len(list((tmp_path / "programs").glob("*-program"))) == 1

    def test_jax_does_not_keep_it_too(self, tmp_path, proto):
        jaxops.onnx.load(proto, cache=tmp_path)(X)
        assert not list(tmp_path.glob("jit_stored*"))
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 0

    def test_a_copy_in_bfloat16_is_kept(self, tmp_path, proto, traced):
        for _ in range(2):
            y = jaxops.onnx.load(proto, cache=tmp_path).astype(jnp.bfloat16)(X.astype(jnp.bfloat16)).y
            assert y.dtype == jnp.bfloat16
        assert len(traced) == 1
