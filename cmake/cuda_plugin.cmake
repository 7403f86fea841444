# libdarkroom_cuda.so: the only thing that links CUDA, NCCL and libtorch_cuda; opened by tensor/device.cpp at the first
# use of a GPU. File rules: .cu only for device code, without torch headers (31 s a file with them, 1.3 s without). Nothing of ops is
# linked in: the program hands its references over (cuda_plugin.h).
enable_language(CUDA)
find_package(CUDAToolkit 13 REQUIRED)
darkroom_import_torch(c10_cuda)
darkroom_import_torch(torch_cuda)

# The wheel's own NCCL where there is one, because torch brings that one into the process.
file(GLOB nccl_of_wheel "${DARKROOM_TORCH_ROOT}/../nvidia/nccl" "${CMAKE_SOURCE_DIR}/.venv-cuda/lib/python3.*/site-packages/nvidia/nccl")
list(TRANSFORM nccl_of_wheel APPEND "/include" OUTPUT_VARIABLE nccl_includes)
list(TRANSFORM nccl_of_wheel APPEND "/lib" OUTPUT_VARIABLE nccl_libraries)
find_path(DARKROOM_NCCL_INCLUDE nccl.h HINTS ${nccl_includes} ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
find_library(DARKROOM_NCCL NAMES libnccl.so.2 nccl HINTS ${nccl_libraries} "${CUDAToolkit_LIBRARY_DIR}" REQUIRED)

file(GLOB plugin_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/plugin/*.cpp" "${CMAKE_SOURCE_DIR}/src/plugin/*.cu")
add_library(darkroom_cuda MODULE ${plugin_sources})
set_target_properties(darkroom_cuda PROPERTIES
  CUDA_STANDARD 17
  CUDA_ARCHITECTURES "${DARKROOM_CUDA_ARCHITECTURES}"
  BUILD_WITH_INSTALL_RPATH OFF
  BUILD_RPATH "${DARKROOM_TORCH_ROOT}/lib;${nvidia_libraries}"
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
target_include_directories(darkroom_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} "${DARKROOM_NCCL_INCLUDE}")
# These promise the CPU's bits, which contraction into fused multiply-adds would change.
set_source_files_properties("${CMAKE_SOURCE_DIR}/src/plugin/diffusion_noise.cu" "${CMAKE_SOURCE_DIR}/src/plugin/update.cu"
  PROPERTIES COMPILE_OPTIONS -fmad=false)
target_link_libraries(darkroom_cuda PRIVATE darkroom_flags darkroom_core darkroom_fmt darkroom_torch
  "-Wl,--no-as-needed" darkroom_imported_torch_cuda darkroom_imported_c10_cuda "-Wl,--as-needed" CUDA::cudart "${DARKROOM_NCCL}")
# nvshmem, cufile and cusparseLt of the full wheel set may be absent where the plugin is only built.
target_link_options(darkroom_cuda PRIVATE "LINKER:--allow-shlib-undefined")
