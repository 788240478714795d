# LibTorch, CPU side only: libtorch_cpu and libc10 (find_package(Torch) would pull in CUDA).
# Looked for in CMAKE_PREFIX_PATH (variable or environment: a plain LibTorch folder or a
# site-packages/torch), then in the virtual environment that ./shardbench makes.
# Defines the targets shardbench_torch and shardbench_torch_pch, and SHARDBENCH_TORCH_FOUND_VERSION.
string(REPLACE ":" ";" _env_prefixes "$ENV{CMAKE_PREFIX_PATH}")
file(GLOB _venv_torch ${PROJECT_SOURCE_DIR}/build/venv/lib/python3*/site-packages/torch)
find_path(SHARDBENCH_TORCH_INCLUDE ATen/ATen.h
          HINTS ${CMAKE_PREFIX_PATH} ${_env_prefixes} ${_venv_torch}
          PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(SHARDBENCH_TORCH_INCLUDE ATen/ATen.h PATH_SUFFIXES include)
if(NOT SHARDBENCH_TORCH_INCLUDE)
  message(FATAL_ERROR "LibTorch not found: run ./shardbench setup, or set CMAKE_PREFIX_PATH to an "
                      "unpacked LibTorch (the folder that holds include/ and lib/)")
endif()
get_filename_component(SHARDBENCH_TORCH_ROOT ${SHARDBENCH_TORCH_INCLUDE} DIRECTORY)
set(SHARDBENCH_TORCH_LIB ${SHARDBENCH_TORCH_ROOT}/lib)
foreach(_library libtorch_cpu.so libc10.so)
  if(NOT EXISTS ${SHARDBENCH_TORCH_LIB}/${_library})
    message(FATAL_ERROR "LibTorch at ${SHARDBENCH_TORCH_ROOT} lacks lib/${_library}: unpack it "
                        "again, or set CMAKE_PREFIX_PATH to a complete one")
  endif()
endforeach()

# Its version, from the header's three numbers, against the oldest one that is supported.
set(_version_header ${SHARDBENCH_TORCH_INCLUDE}/torch/headeronly/version.h)
if(NOT EXISTS ${_version_header})
  set(_version_header ${SHARDBENCH_TORCH_INCLUDE}/torch/csrc/api/include/torch/version.h)
endif()
set(SHARDBENCH_TORCH_FOUND_VERSION "")
foreach(_part MAJOR MINOR PATCH)
  file(STRINGS ${_version_header} _line REGEX "#define TORCH_VERSION_${_part} [0-9]+")
  string(REGEX MATCH "[0-9]+" _number "${_line}")
  list(APPEND SHARDBENCH_TORCH_FOUND_VERSION "${_number}")
endforeach()
list(JOIN SHARDBENCH_TORCH_FOUND_VERSION "." SHARDBENCH_TORCH_FOUND_VERSION)
message(STATUS "LibTorch ${SHARDBENCH_TORCH_FOUND_VERSION}: ${SHARDBENCH_TORCH_ROOT}")

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/versions.env)
file(STRINGS ${PROJECT_SOURCE_DIR}/versions.env _oldest REGEX "^SHARDBENCH_TORCH_OLDEST=")
string(REGEX MATCH "[0-9.]+" _oldest "${_oldest}")
if(SHARDBENCH_TORCH_FOUND_VERSION VERSION_LESS _oldest)
  message(FATAL_ERROR "LibTorch ${SHARDBENCH_TORCH_FOUND_VERSION} at ${SHARDBENCH_TORCH_ROOT} is "
                      "too old: ${_oldest} or newer is needed")
endif()

add_library(shardbench_torch INTERFACE)
target_include_directories(shardbench_torch SYSTEM INTERFACE
  ${SHARDBENCH_TORCH_INCLUDE} ${SHARDBENCH_TORCH_INCLUDE}/torch/csrc/api/include)
# LibTorch brings headers of an fmt of its own (with its own inline namespace) but no library.
target_compile_definitions(shardbench_torch INTERFACE FMT_HEADER_ONLY=1)
# libtorch_cpu of a CUDA wheel needs libcudart and libcupti, which lie beside torch; its own
# RPATH finds them at run time, the linker needs to be told.
file(GLOB _nvidia_libs ${SHARDBENCH_TORCH_ROOT}/../nvidia/*/lib)
set(_rpath_links ${SHARDBENCH_TORCH_LIB} ${_nvidia_libs})
list(TRANSFORM _rpath_links PREPEND "-Wl,-rpath-link,")
target_link_libraries(shardbench_torch INTERFACE
  ${SHARDBENCH_TORCH_LIB}/libtorch_cpu.so ${SHARDBENCH_TORCH_LIB}/libc10.so ${_rpath_links})

# One precompiled header for all rooms that use LibTorch. Written only when missing: a new time
# stamp at each configure would rebuild the header and everything after it.
set(_pch_source ${PROJECT_BINARY_DIR}/torch_pch.cpp)
if(NOT EXISTS ${_pch_source})
  file(WRITE ${_pch_source} "")
endif()
add_library(shardbench_torch_pch STATIC ${_pch_source})
target_link_libraries(shardbench_torch_pch PUBLIC shardbench_options fmt::fmt shardbench_torch)
target_precompile_headers(shardbench_torch_pch PRIVATE
  <ATen/ATen.h> <torch/csrc/autograd/function.h> <torch/csrc/autograd/functions/utils.h>
  <torch/csrc/autograd/engine.h> <torch/csrc/autograd/grad_mode.h> <fmt/format.h>)
