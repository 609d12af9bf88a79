"""Images as inputs of commands: layout, type and size follow from the input, and what does not fit is a message."""

import sys

import numpy as np
import pytest
from onnx import TensorProto as T, helper, parser, save
from PIL import Image

from jaxops.command_line import main

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 4)).astype(np.uint8)
RGBA = Image.fromarray(PIXELS)
RGB, GREY = RGBA.convert("RGB"), RGBA.convert("L")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the identity on an image file in a folder of its own; returns its output, what was printed, and errors."""
    monkeypatch.chdir(tmp_path)
    RGBA.save("photo.png")

    def run(elem_type, shape, *arguments):
        x, y = (helper.make_tensor_value_info(name, elem_type, dims) for name, dims in (("x", shape), ("y", None)))
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), "model.onnx")
        code = main(["run", "model.onnx", *(arguments or ["photo.png"]), "--repeat=1", "--output=out.npy"])
        output = np.load("out.npy") if code == 0 else None
        return output, *capsys.readouterr()

    return run


BATCH_FIRST = [("n", 3, "h", "w"), (1, 3, 5, 7), (None, 3, None, 7)]
BATCH_LAST = [("n", "h", "w", 3), (1, 5, 7, 3), (None, 5, None, 3)]


@pytest.mark.parametrize("shape", [*BATCH_FIRST, *BATCH_LAST, (3, 5, 7), ("h", "w", 3)])
def test_layout(run, shape):
    output, printed, _ = run(T.UINT8, shape)
    expected = np.asarray(RGB) if shape[-1] == 3 else np.asarray(RGB).transpose(2, 0, 1)
    np.testing.assert_array_equal(output, expected.reshape((1,) * (len(shape) - 3) + expected.shape), strict=True)
    assert "255" not in printed.partition("model.onnx")[0]


@pytest.mark.parametrize(("channels", "image"), [(3, RGB), (1, GREY), (4, RGBA)])
def test_channels(run, channels, image):
    output, *_ = run(T.UINT8, ["n", "h", "w", channels])
    np.testing.assert_array_equal(output, np.asarray(image).reshape(1, 5, 7, channels), strict=True)


def test_three_channels_are_looked_for_first(run):
    RGB.resize((4, 4)).save("photo.png")
    output, *_ = run(T.UINT8, [1, 4, 4, 3])
    np.testing.assert_array_equal(output[0], np.asarray(RGB.resize((4, 4))), strict=True)


@pytest.mark.parametrize(
    ("elem_type", "dtype"), [(T.FLOAT, "float32"), (T.FLOAT16, "float16"), (T.BFLOAT16, "bfloat16")]
)
def test_floats_are_divided_by_255_and_a_line_says_so(run, elem_type, dtype):
    output, printed, _ = run(elem_type, ["n", "h", "w", 3])
    expected = (np.asarray(RGB)[None] / 255).astype(dtype)
    np.testing.assert_array_equal(output.view(dtype), expected, strict=True)
    line = printed.splitlines()[0]
    assert line == "photo.png: x = pixels / 255, without normalization by a mean and a standard deviation"


def test_files_behind_an_option_and_by_name(run):
    expected, *_ = run(T.UINT8, [1, 5, 7, 3])
    for arguments in (["--top=1", "photo.png"], ["--top", "1", "photo.png"], ["--input=x=photo.png"]):
        np.testing.assert_array_equal(run(T.UINT8, [1, 5, 7, 3], *arguments)[0], expected, strict=True)
    np.save("array", expected)
    np.testing.assert_array_equal(run(T.UINT8, [1, 5, 7, 3], "array.npy")[0], expected, strict=True)


def test_a_file_without_an_ending_may_be_an_array(run, tmp_path):
    np.save("array", np.asarray(RGB)[None])
    (tmp_path / "array.npy").rename("array")
    np.testing.assert_array_equal(run(T.UINT8, [1, 5, 7, 3], "array")[0], np.asarray(RGB)[None], strict=True)


def test_files_are_inputs_in_their_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (uint8[1,h,w,3] x, float[1] s) => (float[1,h,w,3] y) { f = Cast<to = 1>(x) y = Mul(f, s) }"""
    save(parser.parse_model(text), "model.onnx")
    RGB.save("photo.bmp")
    np.save("s.npy", np.array([2], np.float32))
    for arguments in (["photo.bmp", "s.npy"], ["photo.bmp", "--input=s=s.npy"]):
        assert main(["run", "model.onnx", *arguments, "--output=out.npy"]) == 0
        np.testing.assert_array_equal(np.load("out.npy"), np.asarray(RGB, np.float32)[None] * 2, strict=True)
    assert main(["summary", "model.onnx", "photo.bmp"]) == 0
    assert "float32[1, 5, 7, 3]" in capsys.readouterr().out
    assert main(["run", "model.onnx", "photo.bmp", "--input=x=photo.bmp"]) == 1
    assert "--input: x is given twice, as photo.bmp and as photo.bmp" in capsys.readouterr().err
    assert main(["run", "model.onnx", "photo.bmp", "s.npy", "s.npy"]) == 1
    assert "3 files, but the model's inputs are ['x', 's']" in capsys.readouterr().err


def test_only_files_may_be_left_over(capsys):
    for arguments in (["run", "model.onnx", "photo.png", "--fly"], ["show", "model.onnx", "photo.png"]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert f"unrecognized arguments: {arguments[-1]}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "text", "size"),
    [
        ((1, 3, 8, 6), "float32[1, 3, 8, 6] takes 6 and 8", (6, 8)),
        (("n", "h", 6, 3), "float32[n, h, 6, 3] takes 6 and 5", (6, 5)),
    ],
)
def test_an_image_of_another_size(run, shape, text, size):
    _, _, error = run(T.FLOAT, shape)
    first, hint = error.splitlines()
    assert first == f"jaxops: photo.png: the image is 7 wide and 5 high, but input x: {text}"
    assert hint == f"  hint    resize it, by Pillow: Image.open('photo.png').resize({size}).save('resized.png')"
    Image.open("photo.png").resize(size).save("resized.png")
    assert run(T.FLOAT, shape, "resized.png")[0].size == size[0] * size[1] * 3


@pytest.mark.parametrize(
    ("elem_type", "shape", "declared"),
    [
        (T.FLOAT, ("n", 3), "float32[n, 3]"),
        (T.FLOAT, (2, 3, "h", "w"), "float32[2, 3, h, w]"),
        (T.FLOAT, ("n", "c", "h", "w"), "float32[n, c, h, w]"),
        (T.FLOAT, (1, 1, 3, 5, 7), "float32[1, 1, 3, 5, 7]"),
        (T.FLOAT, None, "float32[…]"),
        (T.INT64, (1, 3, "h", "w"), "int64[1, 3, h, w]"),
    ],
)
def test_an_input_that_cannot_be_an_image(run, elem_type, shape, declared):
    _, _, error = run(elem_type, shape)
    assert error == (
        f"jaxops: photo.png: input x: {declared} does not take an image; an input for images is uint8 or floats, "
        "(1, channels, height, width) or (1, height, width, channels), with 3, 1 or 4 channels\n"
        "  hint    give a .npy file: --input x=FILE.npy\n"
    )


@pytest.mark.parametrize("data", [b"", b"no image", "half"])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_damaged_image_is_one_line(run, tmp_path, data, kind):
    RGB.save("photo", kind)
    whole = (tmp_path / "photo").read_bytes()
    (tmp_path / "photo").write_bytes(whole[: len(whole) // 2] if data == "half" else data)
    _, _, error = run(T.FLOAT, (1, 3, 5, 7), "photo")
    (line,) = error.splitlines()
    assert line.startswith("jaxops: photo: neither a .npy file nor an image that can be decoded: ")
    assert ("its format is unknown" in line) == (data != "half")
    assert line.endswith("it must be a whole file in one of the formats BMP, JPEG, JPEG2000, TIFF, PNG, WEBP, PPM")


def test_without_pillow_it_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    _, _, error = run(T.FLOAT, (1, 3, 5, 7))
    assert error == (
        "jaxops: photo.png: decoding needs Pillow; "
        "install the extra `image` of jaxops: pip install '.[image]' in a checkout of jaxops\n"
    )
