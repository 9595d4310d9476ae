"""Our declarations of XLA's C interface have the layout of jaxlib's header, and an unknown version is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from patrac_native.engine import _core
from patrac_native.interop.jax_function import check_interface

jax = pytest.importorskip("jax", reason="jax is not installed")

OURS = Path(__file__).parents[1] / "csrc" / "bridges" / "xla_interface.hpp"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))

# Our struct, jaxlib's, and pairs of members.
STRUCTS = {
    ("Extension", "XLA_FFI_Extension_Base"): "struct_size:struct_size type:type next:next",
    ("ApiVersion", "XLA_FFI_Api_Version"): "struct_size:struct_size extensions:extension_start "
    "major_version:major_version minor_version:minor_version",
    ("Buffer", "XLA_FFI_Buffer"): "struct_size:struct_size type:dtype data:data rank:rank dims:dims",
    ("ByteSpan", "XLA_FFI_ByteSpan"): "data:ptr size:len",
    ("Scalar", "XLA_FFI_Scalar"): "type:dtype value:value",
    ("Buffers", "XLA_FFI_Args"): "struct_size:struct_size extensions:extension_start size:size types:types values:args",
    ("Buffers ", "XLA_FFI_Rets"): "struct_size:struct_size size:size types:types values:rets",
    ("Attributes", "XLA_FFI_Attrs"): "struct_size:struct_size size:size types:types names:names values:attrs",
    ("CallFrame", "XLA_FFI_CallFrame"): "struct_size:struct_size extensions:extension_start api:api context:ctx "
    "stage:stage arguments:args results:rets attributes:attrs future:future",
    ("ErrorCreateArguments", "XLA_FFI_Error_Create_Args"): "struct_size:struct_size message:message code:errc",
    ("Metadata", "XLA_FFI_Metadata"): "struct_size:struct_size version:api_version traits:traits "
    "state_type:state_type_id",
    ("MetadataExtension", "XLA_FFI_Metadata_Extension"): "base:extension_base metadata:metadata",
    # Api is declared as far as the last function that it calls: its size differs, its members do not.
    ("Api", ""): "version:api_version internal:internal_api error_create:XLA_FFI_Error_Create "
    "state_set:XLA_FFI_State_Set state_get:XLA_FFI_State_Get",
    ("TypeInfo", "XLA_FFI_TypeInfo"): "struct_size:struct_size extensions:extension_start deleter:deleter",
    ("StateArguments", "XLA_FFI_State_Set_Args"): "struct_size:struct_size extensions:extension_start context:ctx "
    "stage:stage type:type_id state:state",
    ("StateArguments ", "XLA_FFI_State_Get_Args"): "context:ctx stage:stage type:type_id state:state",
}
NUMBERS = {
    "major_version": "XLA_FFI_API_MAJOR",
    "metadata_extension": "XLA_FFI_Extension_Metadata",
    "stage_instantiate": "XLA_FFI_ExecutionStage_INSTANTIATE",
    "stage_execute": "XLA_FFI_ExecutionStage_EXECUTE",
    "buffer_argument": "XLA_FFI_ArgType_BUFFER",
    "scalar_attribute": "XLA_FFI_AttrType_SCALAR",
    "type_s64": "XLA_FFI_DataType_S64",
    "type_f32": "XLA_FFI_DataType_F32",
    "type_f64": "XLA_FFI_DataType_F64",
    "error_invalid_argument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "error_failed_precondition": "XLA_FFI_Error_Code_FAILED_PRECONDITION",
    "error_internal": "XLA_FFI_Error_Code_INTERNAL",
}


def comparisons() -> list[str]:
    """Return C++ expressions that hold if the layouts agree."""
    found = [f"patrac::xla::{ours} == int({theirs})" for ours, theirs in NUMBERS.items()]
    found += [
        "patrac::xla::buffer_argument == int(XLA_FFI_RetType_BUFFER)",
        "patrac::xla::minor_version <= XLA_FFI_API_MINOR",
    ]
    found.append("sizeof(std::int64_t) == sizeof(XLA_FFI_TypeId)")
    for (ours, theirs), members in STRUCTS.items():
        own = f"patrac::xla::{ours.strip()}"
        if theirs:
            found.append(f"sizeof({own}) == sizeof({theirs})")
        for pair in members.split():
            a, b = pair.split(":")
            found.append(f"offsetof({own}, {a}) == offsetof({theirs or 'XLA_FFI_Api'}, {b})")
    return found


def differences(header: Path, folder: Path) -> list[str]:
    """Compile our header beside jaxlib's and return the comparisons that fail."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    tests = comparisons()
    rows = "\n".join(f'    if (!({test})) std::puts("{test}");' for test in tests)
    source, program = folder / "layout.cpp", folder / "layout"
    source.write_text(
        f'#include <cstddef>\n#include <cstdio>\n#include "xla/ffi/api/c_api.h"\n#include "{header}"\n'
        f"int main() {{\n{rows}\n}}\n"
    )
    command = [COMPILER, "-std=c++20", "-w", "-I", jax.ffi.include_dir(), "-o", str(program), str(source)]
    subprocess.run(command, check=True, timeout=120)
    return subprocess.run([str(program)], check=True, timeout=60, capture_output=True, text=True).stdout.splitlines()


def test_our_structures_have_the_layout_of_jaxlib(tmp_path: Path) -> None:
    assert len(comparisons()) > 60
    assert differences(OURS, tmp_path) == []


CHANGES = [
    ("    int stage;\n    Buffers arguments;", "    Buffers arguments;\n    int stage;", "CallFrame, stage"),
    ("type_f64 = 12", "type_f64 = 10", "type_f64"),
    ("    std::uint32_t traits;", "    std::uint32_t traits, more[2];", "sizeof(patrac::xla::Metadata)"),
]


def test_another_layout_is_found(tmp_path: Path) -> None:
    text = OURS.read_text()
    for old, new, _ in CHANGES:
        assert text.count(old) == 1
        text = text.replace(old, new)
    twin = tmp_path / "twin.hpp"
    twin.write_text(text)
    lines = differences(twin, tmp_path)
    for _, _, found in CHANGES:
        assert any(found in line for line in lines)


def header(folder: Path, text: str) -> str:
    """Write a header in the place where jaxlib has its own; return the folder of headers."""
    path = folder / "xla" / "ffi" / "api" / "c_api.h"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("#define XLA_FFI_API_MAJOR 1\n#define XLA_FFI_API_MINOR 5\n", "has 1.5"),
        ("#define XLA_FFI_API_MAJOR 0\n#define XLA_FFI_API_MINOR 2\n", "has 0.2"),
        ("nothing of the kind\n", "has an unknown version"),
    ],
)
def test_another_version_is_refused(text: str, has: str, tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="unknown version"):
        check_interface(str(tmp_path), (0, 3))
    with pytest.raises(ImportError, match=r"needs version 0\.3 of XLA.*" + has):
        check_interface(header(tmp_path, text), (0, 3))


def test_later_minor_versions_and_the_installed_one_are_accepted(tmp_path: Path) -> None:
    check_interface(header(tmp_path, "#define XLA_FFI_API_MAJOR 0\n#define XLA_FFI_API_MINOR 9\n"), (0, 3))
    check_interface(jax.ffi.include_dir(), _core.XLA_INTERFACE)
