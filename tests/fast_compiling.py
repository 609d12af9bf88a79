"""How tests compile: before JAX is imported, `compile_fast()` sets what XLA shall leave out; behind the import,
`lower_fast()` lets JAX do once what it does for each program."""

import itertools
import os
import threading
from importlib.metadata import version

# XLA's older emitters; and code that is generated as a whole, as its 32 parts take longer together.
_FLAGS = {"--xla_cpu_use_fusion_emitters": "false", "--xla_cpu_parallel_codegen_split_count": "1"}
_KNOWN = version("jaxlib").startswith("0.10.")


def compile_fast() -> bool:
    """Whether programs are compiled fast, and not as users' programs are, which JAX_DISABLE_MOST_OPTIMIZATIONS=0 asks.

    With few optimizations, and XLA's older emitters, a program takes 0.3 of the time. The older emitters cast to float8
    FNUZ wrongly, and change bits of bfloat16. A flag that is already there is kept.
    """
    fast = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1"
    given = os.environ.get("XLA_FLAGS", "")
    if fast and _KNOWN:  # the last that has the older emitters
        flags = [f"{name}={value}" for name, value in _FLAGS.items() if name not in given]
        os.environ["XLA_FLAGS"] = " ".join([given, *flags]).strip()
    return fast


def lower_fast() -> None:
    """Saves a fifth of the time of a test, whatever XLA does: JAX 0.10 makes a context of MLIR for each program, with
    all its dialects, and compiles an identity for each shape that `jnp.asarray` gets.

    Both are private names of JAX, so other versions are left alone.
    """
    if not _KNOWN:
        return
    import jax
    from jax._src.interpreters import mlir
    from jax._src.lax import lax

    make, count, mine = mlir.make_ir_context, itertools.count(), threading.local()

    def context():
        if next(count) % 200 == 0 or not hasattr(mine, "context"):  # a context keeps the constants of its programs
            mine.context = make()
        return mine.context

    mlir.make_ir_context = context
    lax.stage_p.def_impl(jax.device_put)
