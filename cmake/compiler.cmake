# Flags of every target of ours. No contraction into fused multiply-adds: the same source gives the same bits everywhere.
# -Wno-restrict: g++ 12 warns falsely about "literal" + std::string (GCC bug 105329).
# A warning stops the build with Debian 12's compiler, which shows none; a newer one's must not stop a user.
set(is_known_compiler OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\.")
  set(is_known_compiler ON)
endif()
option(DARKROOM_WERROR "Warnings stop the build; default: with the compiler of Debian 12" "${is_known_compiler}")
set(werror "$<$<BOOL:${DARKROOM_WERROR}>:-Werror>")
add_library(darkroom_flags INTERFACE)
target_compile_options(darkroom_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;${werror};$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>;-ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # It collects its garbage from 1 GB on, not from 128 MB: a tenth of its time, for 300 MB more of memory.
  target_compile_options(darkroom_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=1000000>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # From g++ 13 on (P2468) `text == json` no longer finds the member `json == text`, with which nlohmann's header serves C++20; its
  # friend operators for older standards take both.
  target_compile_definitions(darkroom_flags INTERFACE JSON_HAS_THREE_WAY_COMPARISON=0)
endif()
if(DARKROOM_BATCHES AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The warning is about types of a header's anonymous namespace; in a batch every source is an included file.
  target_compile_options(darkroom_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
target_include_directories(darkroom_flags INTERFACE "${CMAKE_SOURCE_DIR}/include")

if(DARKROOM_ASSERTIONS)
  string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
  string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()

if(DARKROOM_SANITIZE)
  add_compile_options(-fsanitize=${DARKROOM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DARKROOM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's manual says that it warns falsely of instrumented code (an empty std::optional was the case).
    target_compile_options(darkroom_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
    if(DARKROOM_SANITIZE MATCHES "undefined")
      # These four are two fifths of g++'s time. AddressSanitizer sees what a null or stale pointer or one beyond its object does.
      add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
    endif()
  else()
    # g++'s names, by which tests ask.
    if(DARKROOM_SANITIZE MATCHES "address")
      add_compile_definitions(__SANITIZE_ADDRESS__=1)
    elseif(DARKROOM_SANITIZE MATCHES "thread")
      add_compile_definitions(__SANITIZE_THREAD__=1)
      # Inlined functions, too, have their whole names in stacks, by which they are suppressed.
      add_compile_options(-fdebug-info-for-profiling)
    endif()
    if(DARKROOM_SANITIZE MATCHES "undefined")
      # A library that is opened by name has its own types for what its functions take.
      add_compile_options(-fno-sanitize=function)
    endif()
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" "${CCACHE}")
endif()
