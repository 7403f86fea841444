# darkroom_torch: libtorch_cpu + libc10 of the torch wheel, nothing of CUDA. Own imported targets, because the wheel's
# find_package needs a CUDA toolkit and then fails to link.
if(NOT EXISTS "${DARKROOM_TORCH_ROOT}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no torch wheel at '${DARKROOM_TORCH_ROOT}': run 'make setup', or set DARKROOM_TORCH_ROOT")
endif()
file(READ "${DARKROOM_TORCH_ROOT}/version.py" torch_version)
if(NOT torch_version MATCHES "__version__ = '2\\.11\\.")
  message(FATAL_ERROR "the torch wheel must be 2.11, found: ${torch_version}")
endif()

function(darkroom_import_torch name)
  add_library(darkroom_imported_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(darkroom_imported_${name} PROPERTIES IMPORTED_LOCATION "${DARKROOM_TORCH_ROOT}/lib/lib${name}.so")
endfunction()
darkroom_import_torch(c10)
darkroom_import_torch(torch_cpu)

file(GLOB nvidia_libraries "${DARKROOM_TORCH_ROOT}/../nvidia/*/lib")
list(JOIN nvidia_libraries ":" nvidia_libraries)
add_library(darkroom_torch INTERFACE IMPORTED GLOBAL)
target_include_directories(darkroom_torch SYSTEM INTERFACE
  "${DARKROOM_TORCH_ROOT}/include" "${DARKROOM_TORCH_ROOT}/include/torch/csrc/api/include")
target_compile_definitions(darkroom_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_link_libraries(darkroom_torch INTERFACE "-Wl,--no-as-needed" darkroom_imported_torch_cpu darkroom_imported_c10 "-Wl,--as-needed")
if(nvidia_libraries)
  target_link_options(darkroom_torch INTERFACE "LINKER:-rpath-link,${nvidia_libraries}")
endif()
