"""The levels of instructions to which ATen, oneDNN and MKL can be held, and which of them this machine's processor has.

Shared by tools/check/every_processor.py, which runs our tests under them, and tools/goldens/make_spread.py, which runs the reference.
"""

import dataclasses
import itertools
import pathlib
import re

# Level -> the flags of /proc/cpuinfo that it needs.
ATEN = {"default": (), "avx2": ("avx2", "fma"), "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma")}
ONEDNN = {
    "SSE41": ("sse4_1",), "AVX2": ("avx2",), "AVX512_CORE": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "AVX512_CORE_BF16": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16")}
# None: MKL chooses by itself.
MKL = {"SSE4_2": ("sse4_2",), "AVX2": ("avx2",), None: ()}

# How each names its level itself: at::get_cpu_capability, the heads of what oneDNN and MKL write with ONEDNN_VERBOSE=1 and MKL_VERBOSE=1.
SAYS = {
    "ATEN_CPU_CAPABILITY": {"default": "aten_level: DEFAULT\n", "avx2": "aten_level: AVX2\n", "avx512": "aten_level: AVX512\n"},
    "ONEDNN_MAX_CPU_ISA": {
        "SSE41": "cpu,isa:Intel SSE4.1\n", "AVX2": "cpu,isa:Intel AVX2\n",
        "AVX512_CORE": "cpu,isa:Intel AVX-512 with AVX512BW, AVX512VL, and AVX512DQ extensions\n",
        "AVX512_CORE_BF16": "cpu,isa:Intel AVX-512 with Intel DL Boost and bfloat16 support\n"},
    "MKL_ENABLE_INSTRUCTIONS": {"SSE4_2": "(Intel(R) SSE4.2) enabled processors", "AVX2": "(Intel(R) AVX2) enabled processors"}}


@dataclasses.dataclass(frozen=True)
class Level:
    name: str
    environment: dict
    lacks: str  # What the processor would need for it; empty where it has it.


def processor_flags():
    found = re.search(r"^flags\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(found.group(1).split()) if found else set()


def processor_name():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    fields = [re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE) for name in ("model name", "cpu family", "model")]
    name, family, model = (field.group(1) if field else "?" for field in fields)
    return f"{name}, family {family}, model {model}"


def lacking(needs, flags):
    missing = [flag for flag in needs if flag not in flags]
    return "the processor has no " + ", ".join(missing) if missing else ""


def torch_levels(flags=None):
    """ATen's levels crossed with oneDNN's, MKL free to choose; then MKL's levels, the other two at their best."""
    flags = processor_flags() if flags is None else flags
    levels = []
    for (aten, aten_needs), (onednn, onednn_needs) in itertools.product(ATEN.items(), ONEDNN.items()):
        levels.append(Level(f"ATen {aten}, oneDNN {onednn}", {"ATEN_CPU_CAPABILITY": aten, "ONEDNN_MAX_CPU_ISA": onednn},
                            lacking(aten_needs + onednn_needs, flags)))
    for mkl, needs in MKL.items():
        levels.append(Level(f"MKL {mkl or 'best'}", {"MKL_ENABLE_INSTRUCTIONS": mkl} if mkl else {}, lacking(needs, flags)))
    return levels
