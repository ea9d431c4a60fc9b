"""What XLA must be told of a GPU that is not here: a GpuTargetConfigProto, as text."""

from transduce.parallel.hardware import Chip

HOPPER = ("h100", "h200")
"""Chips of one die: 132 multiprocessors, compute capability 9.0."""

_BYTES = {"h100": 85_017_493_504, "h200": 151_397_597_184}
"""Of memory, as the device reports it: less than the maker's figure."""

_TEXT = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  memory_bandwidth: {bandwidth}
  device_memory_size: {memory}
  device_address_bits: 64
  cuda_compute_capability {{ major: 9 feature_extension: ACCELERATED_FEATURES }}
  device_vendor: "NVIDIA Corporation"
  name: "{name}"
  driver_version: "13.0.0"
  runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
device_description_str: "{name}"
"""


def target_config(chip: Chip) -> str:
    """Of a chip in HOPPER."""
    return _TEXT.format(bandwidth=int(chip.bandwidth), memory=_BYTES[chip.name], name=chip.kinds[0])
