"""Calls of operators with huge sizes, each eagerly, with static operands and under `jit`; a line of output for each.

`tests/test_memory.py` runs this in a process of its own, as XLA ends the process at sizes that it cannot count.
"""

import json
import os
import resource
import sys

import jax
import jax.numpy as jnp
import numpy as np

from jaxops import ops

f32 = np.float32
VECTOR, MATRIX, IMAGE = np.ones(1, f32), np.ones((2, 3), f32), np.ones((1, 1, 4, 4), f32)
KERNEL, PLACES = np.ones((1, 1, 3, 3), f32), np.zeros((1, 1, 4, 4), np.int64)
COLUMN, ROW = np.ones((2**20, 1), f32), np.ones((1, 2**20), f32)
NUMBERS = {"2^36": 2**36, "2^62": 2**62, "2^63-1": 2**63 - 1}


def zeros(*sizes, value=0.0):
    """A broadcast view: it takes no memory."""
    return ops.constant_of_shape(sizes, value=f32(value))


# Function of (operand, n), and the operand.
TOO_LARGE = {
    "expand": (lambda x, n: ops.expand(x, (n,)), VECTOR),
    "tile": (lambda x, n: ops.tile(x, (n, n)), MATRIX),
    "pad": (lambda x, n: ops.pad(x, (n, n, 0, 0)), MATRIX),
    "pad edge": (lambda x, n: ops.pad(x, (n, n, 0, 0), mode="edge"), MATRIX),
    "center_crop_pad": (lambda x, n: ops.center_crop_pad(x, (n, n)), MATRIX),
    "conv pads": (lambda x, n: ops.conv(x, KERNEL, pads=(n, 0, n, 0)), IMAGE),
    "conv pads and strides": (lambda x, n: ops.conv(x, KERNEL, strides=(n, n), pads=(n, n, n, n)), IMAGE),
    "conv dilations": (lambda x, n: ops.conv(x, KERNEL, dilations=(n, n), pads=(n, n, n, n)), IMAGE),
    "conv_transpose strides": (lambda x, n: ops.conv_transpose(x, KERNEL, strides=(n, n)), IMAGE),
    "conv_transpose dilations": (lambda x, n: ops.conv_transpose(x, KERNEL, dilations=(n, n)), IMAGE),
    "conv_transpose output_shape": (lambda x, n: ops.conv_transpose(x, KERNEL, output_shape=(n, n)), IMAGE),
    "max_pool pads": (lambda x, n: ops.max_pool(x, kernel_shape=(2, 2), pads=(n, n, n, n)), IMAGE),
    "average_pool kernel": (lambda x, n: ops.average_pool(x, kernel_shape=(n, n), pads=(n, n, n, n)), IMAGE),
    "lp_pool dilations": (
        lambda x, n: ops.lp_pool(x, kernel_shape=(2, 2), dilations=(n, n), pads=(n, n, n, n)),
        IMAGE,
    ),
    "max_unpool": (lambda x, n: ops.max_unpool(x, PLACES, kernel_shape=(2, 2), strides=(n, n)), IMAGE),
    "max_unpool output_shape": (lambda x, n: ops.max_unpool(x, PLACES, (1, 1, n, n), kernel_shape=(2, 2)), IMAGE),
    "one_hot": (lambda x, n: ops.one_hot(x.astype(np.int32), n, f32([0, 1])), MATRIX),
    "range": (lambda x, n: ops.range(0, n, 1), VECTOR),
    "range of floats": (lambda x, n: ops.range(f32(0), f32(n), f32(1e-45)), VECTOR),
    "hann_window": (lambda x, n: ops.hann_window(n), VECTOR),
    "mel_weight_matrix": (lambda x, n: ops.mel_weight_matrix(n, 8, 8000, 0.0, 4000.0), VECTOR),
    "dft": (lambda x, n: ops.dft(x, n), np.ones((1, 3, 1), f32)),
    "random_normal": (lambda x, n: ops.random_normal(shape=(n, 4), seed=0.0), VECTOR),
    "multinomial": (lambda x, n: ops.multinomial(x, sample_size=n, seed=0.0), MATRIX),
    "resize": (lambda x, n: ops.resize(x, sizes=(n, 3), mode="linear"), MATRIX),
    "affine_grid": (lambda x, n: ops.affine_grid(x, (1, 1, n, 1)), np.ones((1, 2, 3), f32)),
    "roi_align": (
        lambda x, n: ops.roi_align(x, np.zeros((1, 4), f32), np.zeros(1, int), output_height=n, output_width=n),
        IMAGE,
    ),
    "max_roi_pool": (lambda x, n: ops.max_roi_pool(x, np.zeros((1, 5), f32), pooled_shape=(n, n)), IMAGE),
    "nonzero size": (lambda x, n: ops.nonzero(x, size=n), MATRIX),
    "compress size": (lambda x, n: ops.compress(x, np.array([True, False]), axis=0, size=n), MATRIX),
    "loop": (lambda x, n: ops.loop(n, None, [x], lambda i, keep, s: (keep, s, s)), VECTOR),
    "reduce_sum": (lambda x, n: ops.reduce_sum(zeros(n)), VECTOR),
    "add": (lambda x, n: ops.add(zeros(n), x), VECTOR),
    "cast": (lambda x, n: ops.cast(zeros(n), to=np.int32), VECTOR),
    "nonzero": (lambda x, n: ops.nonzero(zeros(n)), VECTOR),
    "unique": (lambda x, n: ops.unique(zeros(n)), VECTOR),
    "concat": (lambda x, n: ops.concat([zeros(n), x], axis=0), VECTOR),
    "gather": (lambda x, n: ops.gather(x, ops.constant_of_shape((n,), value=np.int64(0))), VECTOR),
    "split_to_sequence": (lambda x, n: ops.split_to_sequence(zeros(n)), VECTOR),
    "string_concat": (
        lambda x, n: ops.string_concat(ops.expand(np.array("a", object), (n,)), np.array("b", object)),
        VECTOR,
    ),
    "tf_idf_vectorizer": (
        lambda x, n: ops.tf_idf_vectorizer(
            np.ones(3, np.int32), max_gram_length=1, max_skip_count=n, min_gram_length=1, mode="TF",
            ngram_counts=(0,), ngram_indexes=(n,), pool_int64s=(1,),
        ),
        VECTOR,
    ),
}  # fmt: skip
OUTER = {
    "add": lambda x, y: ops.add(x, y),
    "equal": lambda x, y: ops.equal(x, y),
    "where": lambda x, y: ops.where(np.array(True), x, y),
    "matmul": lambda x, y: ops.matmul(x, y),
    "gemm": lambda x, y: ops.gemm(x, y),
    "einsum": lambda x, y: ops.einsum([x, y], equation="ij,jk->ik"),
}
# What is right although a number is huge: (function, operand, result).
RIGHT = {
    "shape": (lambda x, n: ops.shape(zeros(n // 32)), VECTOR, lambda n: [n // 32]),
    "size": (lambda x, n: ops.size(zeros(n // 32)), VECTOR, lambda n: n // 32),
    "eye_like": (lambda x, n: ops.eye_like(x, k=n), MATRIX, lambda n: [[0, 0, 0]] * 2),
    "eye_like below": (lambda x, n: ops.eye_like(x, k=-n), MATRIX, lambda n: [[0, 0, 0]] * 2),
    "pool strides": (
        lambda x, n: ops.average_pool(x, kernel_shape=(2, 2), strides=(n, n)), IMAGE, lambda n: [[[[1]]]]),
    "pool strides and pads": (
        lambda x, n: ops.max_pool(x, kernel_shape=(5, 5), strides=(n, n), pads=(2,) * 4), IMAGE, lambda n: [[[[1]]]]),
    "pool ceil_mode": (
        lambda x, n: ops.lp_pool(x, kernel_shape=(1, 1), strides=(n, n), ceil_mode=1), IMAGE, lambda n: [[[[1]]]]),
    "conv strides": (lambda x, n: ops.conv(x, KERNEL, strides=(n, n)), IMAGE, lambda n: [[[[9]]]]),
    "dilations of one element": (
        lambda x, n: ops.conv(x, KERNEL[:, :, :1, :1], dilations=(n, n), strides=(4, 4)), IMAGE, lambda n: [[[[1]]]]),
    "stft": (
        lambda x, n: ops.stft(x, n, frame_length=2, onesided=1), np.ones((1, 2, 1), f32),
        lambda n: [[[[2, 0], [0, 0]]]]),
    "lrn": (
        lambda x, n: ops.lrn(x, size=n, alpha=0.0, beta=1.0), np.ones((1, 2, 1), f32), lambda n: [[[1], [1]]]),
    "slice": (lambda x, n: ops.slice(x, (1,), (n,), (0,), (n,)), np.arange(3.0, dtype=f32), lambda n: [1]),
}  # fmt: skip


def outcome(fn, *operands):
    try:
        return np.asarray(fn(*operands)).tolist()
    except Exception as error:
        return [type(error).__name__, str(error)]


def main():
    limit = 3 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def say(name, mode, found, expected=None):
        print(json.dumps([name, mode, found, expected]), flush=True)

    for label, n in NUMBERS.items():
        for name, (fn, x) in TOO_LARGE.items():
            if name != "expand" or n > 2**60:  # of a static operand it is a view
                say(f"{name} {label}", "static", outcome(lambda x, fn=fn, n=n: fn(x, n), x))
            say(f"{name} {label}", "eager", outcome(lambda x, fn=fn, n=n: fn(jnp.asarray(x), n), x))
            if n > 2**60:  # XLA would end the process
                say(f"{name} {label}", "jit", outcome(lambda x, fn=fn, n=n: jax.jit(lambda x: fn(x, n)).lower(x), x))
        for name, (fn, x, result) in RIGHT.items():
            say(f"{name} {label}", "static", outcome(lambda x, fn=fn, n=n: fn(x, n), x), result(n))
    for name, fn in OUTER.items():
        say(f"outer {name}", "static", outcome(fn, COLUMN, ROW))
        say(f"outer {name}", "eager", outcome(fn, jnp.asarray(COLUMN), jnp.asarray(ROW)))
    print("done")


if __name__ == "__main__":
    sys.exit(main())
