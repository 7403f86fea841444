# darkroom_module(NAME [DEPENDS module...] [LIBRARIES target...] [TORCH]): one static library a module, from
# src/NAME/*.cpp. TORCH: compiled with the shared precompiled torch header. deps.toml holds the table that DEPENDS and
# every #include are checked against.
function(darkroom_module name)
  cmake_parse_arguments(module "TORCH" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${name}/*.cpp")
  if(NOT sources)
    message(FATAL_ERROR "module '${name}' has no sources: src/${name}/*.cpp")
  endif()
  add_library(darkroom_${name} STATIC ${sources})
  target_link_libraries(darkroom_${name} PUBLIC darkroom_flags ${module_LIBRARIES})
  foreach(dependency IN LISTS module_DEPENDS)
    if(NOT TARGET darkroom_${dependency})
      message(FATAL_ERROR "module '${name}' depends on '${dependency}', which is not built before it")
    endif()
    target_link_libraries(darkroom_${name} PUBLIC darkroom_${dependency})
  endforeach()
  if(name IN_LIST DARKROOM_MUTATED)
    # tools/check/mutants.py: one changed file compiles one object, soon, whatever it makes the compiler warn of.
    set_target_properties(darkroom_${name} PROPERTIES UNITY_BUILD OFF)
    target_compile_options(darkroom_${name} PRIVATE -O1 -w)
  endif()
  if(DARKROOM_SANITIZE AND name MATCHES "^(image|tables|text)$")
    target_compile_options(darkroom_${name} PRIVATE -O1)  # Loops over every pixel, character and byte: there, what -O0 saves is lost again.
  endif()
  if(module_TORCH)
    darkroom_use_torch(darkroom_${name})
  endif()
endfunction()

# Compiles a target with the one precompiled torch header.
function(darkroom_use_torch target)
  target_link_libraries(${target} PUBLIC darkroom_torch)
  target_precompile_headers(${target} REUSE_FROM darkroom_torch_header)
  target_compile_options(${target} PRIVATE -fpch-preprocess)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    # The header is compiled with -fPIC; an executable's -fPIE would not fit it.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# darkroom_unit_test(MODULE): one test program per module, from tests/unit/MODULE/*.cpp.
function(darkroom_unit_test module)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/unit/${module}/*.cpp")
  if(NOT sources)
    message(FATAL_ERROR "module '${module}' has no tests: tests/unit/${module}/*.cpp")
  endif()
  if(DARKROOM_SANITIZE STREQUAL "thread")
    # Of the tests only those that start threads; what they include may change that.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
    execute_process(COMMAND "${DARKROOM_VENV}/bin/python" "${CMAKE_SOURCE_DIR}/tools/check/threaded_tests.py" ${module} OUTPUT_VARIABLE sources
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    if(NOT sources)
      return()
    endif()
    string(REPLACE "\n" ";" sources "${sources}")
  endif()
  if(NOT TARGET darkroom_${module})
    message(FATAL_ERROR "tests/unit/${module} tests a module that this build lacks: darkroom_${module}")
  endif()
  add_executable(${module}_test ${sources})
  target_link_libraries(${module}_test PRIVATE darkroom_${module} darkroom_test_support GTest::gmock GTest::gtest_main)
  get_target_property(libraries darkroom_${module} LINK_LIBRARIES)
  if("darkroom_torch" IN_LIST libraries)
    darkroom_use_torch(${module}_test)  # As its precompiled header is compiled.
  else()
    # What a test calls is compiled as users have it; the test itself need not be fast, and compiles in half of the time.
    target_compile_options(${module}_test PRIVATE -O0)
  endif()
  set_target_properties(${module}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${module} COMMAND ${module}_test)
  set_tests_properties(${module} PROPERTIES LABELS unit ENVIRONMENT "DARKROOM_SOURCE_DIR=${CMAKE_SOURCE_DIR}")
endfunction()

# darkroom_helper(NAME SOURCE LIBRARY...): a program that only a script of tests/acceptance, tools/parity or benchmarks starts. The scripts build
# theirs by name; the target `helpers` is all of them.
add_custom_target(helpers)
function(darkroom_helper name source)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE ${ARGN})
  add_dependencies(helpers ${name})
endfunction()
