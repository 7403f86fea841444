# The compiler of the presets with a sanitizer: clang 14 where it is (requirements/apt_sanitizers.txt), which needs half of the time of
# g++ for code with AddressSanitizer, else CMake's choice, g++. Other versions of clang have not been tried.
if(NOT CMAKE_CXX_COMPILER)
  find_program(DARKROOM_CLANG NAMES clang++-14)
  find_program(DARKROOM_SYMBOLIZER NAMES llvm-symbolizer)  # Or stacks have no names, which suppressions go by.
  if(DARKROOM_CLANG AND DARKROOM_SYMBOLIZER)
    execute_process(COMMAND "${DARKROOM_CLANG}" --rtlib=compiler-rt -print-libgcc-file-name OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    cmake_path(GET runtime PARENT_PATH runtime)
    file(GLOB runtimes "${runtime}/libclang_rt.asan*.a" "${runtime}/libclang_rt.tsan*.a")
  endif()
  if(runtimes)
    set(CMAKE_CXX_COMPILER "${DARKROOM_CLANG}")
  endif()
endif()
