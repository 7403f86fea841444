# darkroom_arrow: libarrow + libparquet of the pyarrow wheel (versioned files by full path; the wheel has no CMake package).
set(DARKROOM_PYARROW_ROOT "${DARKROOM_TORCH_ROOT}/../pyarrow")
if(NOT EXISTS "${DARKROOM_PYARROW_ROOT}/libarrow.so.2300")
  message(FATAL_ERROR "no pyarrow 23 wheel at '${DARKROOM_PYARROW_ROOT}': run 'make setup'")
endif()
foreach(name arrow parquet)
  add_library(darkroom_imported_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(darkroom_imported_${name} PROPERTIES IMPORTED_LOCATION "${DARKROOM_PYARROW_ROOT}/lib${name}.so.2300")
endforeach()
add_library(darkroom_arrow INTERFACE IMPORTED GLOBAL)
target_include_directories(darkroom_arrow SYSTEM INTERFACE "${DARKROOM_PYARROW_ROOT}/include")
target_link_libraries(darkroom_arrow INTERFACE darkroom_imported_parquet darkroom_imported_arrow)
# libparquet shows the OpenSSL that is linked into it to all that is loaded after it; the system's, which libcurl (and Python's hashlib) use,
# must find its own functions first. One item: CMake would merge its halves with those of others.
find_library(DARKROOM_SSL NAMES libssl.so.3 REQUIRED)
find_library(DARKROOM_CRYPTO NAMES libcrypto.so.3 REQUIRED)
target_link_options(darkroom_arrow INTERFACE "LINKER:--no-as-needed,${DARKROOM_CRYPTO},${DARKROOM_SSL},--as-needed")
