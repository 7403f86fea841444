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

# Programs find the wheels by paths relative to themselves, so that a checkout can be moved with what it built: one
# entry a folder that programs are put into. Outside the source tree the wheels' own place is the better name.
foreach(folder "${CMAKE_BINARY_DIR}" "${CMAKE_BINARY_DIR}/tests")
  foreach(libraries torch/lib pyarrow)
    set(path "${DARKROOM_TORCH_ROOT}/../${libraries}")
    cmake_path(NORMAL_PATH path)
    cmake_path(IS_PREFIX CMAKE_SOURCE_DIR "${path}" is_inside)
    if(is_inside)
      cmake_path(RELATIVE_PATH path BASE_DIRECTORY "${folder}")
      set(path "$ORIGIN/${path}")
    endif()
    list(APPEND CMAKE_INSTALL_RPATH "${path}")
  endforeach()
endforeach()
list(REMOVE_DUPLICATES CMAKE_INSTALL_RPATH)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
