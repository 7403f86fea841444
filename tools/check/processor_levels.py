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
