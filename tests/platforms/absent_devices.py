"""Devices that are not there: their compilers run on any machine with Linux, from packages of the package index.

The extra `gpu-check` has a GPU's compiler, `tpu-check` a TPU's. They only compile: numbers and times on such devices
stay unknown. Processes that compile for such devices set the variables of `ENVIRONMENT`.
"""

import importlib.util
import os
from importlib.metadata import PackageNotFoundError, version

# Where libtpu asks for the machine that it is on, it waits for minutes.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
PLUGINS = ("jax-cuda13-plugin", "jax-cuda13-pjrt")
# An NVIDIA H100 with 80 GB, in the fields that XLA's compiler asks for.
H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_core: 233472 shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 device_memory_size: 84942979072
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0" dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
"""


def missing(platform):
    """Returns why programs for "cuda" or "tpu" cannot be compiled here; "" if they can."""
    if platform == "tpu":
        return "" if importlib.util.find_spec("libtpu") else "pip install '.[tpu-check]'"
    jaxlib = version("jaxlib")
    for name in PLUGINS:
        try:
            found = version(name)
        except PackageNotFoundError:
            return f"pip install --no-deps {' '.join(f'{each}=={jaxlib}' for each in PLUGINS)}"
        if found != jaxlib:
            return f"{name} is {found}, and jaxlib {jaxlib}: both must have one version"
    return ""


def devices(platform):
    """Returns four chips of a TPU v5e, or an H100, for JAX to compile for. Needs `ENVIRONMENT`."""
    from jax.experimental import topologies

    assert os.environ["JAX_PLATFORMS"] == "cpu"
    if platform == "tpu":
        options = {"topology_name": "v5e:2x2", "chips_per_host_bounds": [2, 2, 1]}
    else:
        options = {"topology_name": "", "topology": "1x1x4", "target_config": H100}
    return topologies.get_topology_desc(platform=platform, **options).devices
