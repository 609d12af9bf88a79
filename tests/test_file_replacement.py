"""Files that are replaced: complete or not at all, with the permissions of the old one, and never a device."""

import os
import socket
import stat
from pathlib import Path

import pytest

import jaxops.onnx
import jaxops.openvino
from jaxops.errors import PathError
from jaxops.file_replacement import replacing

MODELS = Path(__file__).parent / "models"
ONNX = Path(__file__).parents[1] / "notebooks/digits.onnx"
IR = sorted((MODELS / "nncf").glob("*.xml"))[0]


def save_onnx(path):
    jaxops.onnx.load(ONNX).save(path)


def save_ir(path):
    jaxops.openvino.load(IR).save(path)


def save_bin(path):
    """Replaces the second file of an IR."""
    jaxops.openvino.load(IR).save(path.with_suffix(".xml"))


def to_python(path):
    jaxops.onnx.load(ONNX).to_python(path.parent, overwrite=True)


# What writes a file of each name.
WRITERS = {
    "m.onnx": save_onnx,
    "m.xml": save_ir,
    "m.bin": save_bin,
    "__init__.py": to_python,
    "params.safetensors": to_python,
}
everywhere = pytest.mark.parametrize(("name", "write"), WRITERS.items(), ids=WRITERS)


def pipe(path):
    os.mkfifo(path)


def device(path):
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # as /dev/null
    except PermissionError:
        pytest.skip("only root makes devices")


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


@pytest.mark.parametrize(
    ("make", "kind"), [(pipe, "a pipe"), (device, "a device"), (a_socket, "a socket"), (Path.mkdir, "a folder")]
)
def test_only_files_are_replaced(tmp_path, make, kind):
    path = tmp_path / "x"
    make(path)
    before = path.stat().st_ino
    link = tmp_path / "link"
    link.symlink_to(path)
    for each in (path, link):
        with (
            pytest.raises(PathError, match=rf"save: '.*' is {kind}, which is not replaced; give the path of a file"),
            replacing(each, "save"),
        ):
            pytest.fail("it must not be written")
    assert path.stat().st_ino == before
    assert sorted(os.listdir(tmp_path)) == ["link", "x"]


@everywhere
def test_pipes_stay(tmp_path, name, write):
    path = tmp_path / name
    pipe(path)
    with pytest.raises(PathError, match=rf"(save|to_python): '.*{name}' is a pipe, which is not replaced"):
        write(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert [other for other in os.listdir(tmp_path) if other.startswith(".")] == []


@everywhere
def test_permissions_and_links_stay(tmp_path, name, write):
    path, real = tmp_path / name, tmp_path / "real"
    path.symlink_to("real")
    real.write_bytes(b"old")
    real.chmod(0o640)
    before = real.stat().st_ino
    write(path)
    assert path.is_symlink()
    assert real.stat().st_ino != before
    assert real.stat().st_mode & 0o777 == 0o640
    assert real.stat().st_size > 3


def test_a_new_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "plain").touch()
    save_onnx(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def fail():
        with replacing(path, "save") as file:
            file.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "circle"])
def test_paths_that_cannot_be_looked_up(tmp_path, path):
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(PathError, match=r"save: '.* cannot be looked up: "), replacing(tmp_path / path, "save"):
        pytest.fail("it must not be written")
