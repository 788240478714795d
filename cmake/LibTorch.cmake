# LibTorch for this build: found as ShardbenchTorch.cmake says, besides in the virtual environment
# that ./shardbench makes. Defines the targets shardbench_torch and shardbench_torch_pch,
# SHARDBENCH_TORCH_FOUND_VERSION and SHARDBENCH_TORCH_OLDEST_VERSION.
include(ShardbenchTorch)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/versions.env)
file(STRINGS ${PROJECT_SOURCE_DIR}/versions.env _oldest REGEX "^SHARDBENCH_TORCH_OLDEST=")
string(REGEX MATCH "[0-9.]+" SHARDBENCH_TORCH_OLDEST_VERSION "${_oldest}")
file(GLOB _venv_torch ${PROJECT_SOURCE_DIR}/build/venv/lib/python3*/site-packages/torch)
shardbench_find_torch(OLDEST ${SHARDBENCH_TORCH_OLDEST_VERSION} HINTS ${_venv_torch})
if(SHARDBENCH_TORCH_ERROR)
  message(FATAL_ERROR "${SHARDBENCH_TORCH_ERROR}; or run ./shardbench setup, which fetches one")
endif()
message(STATUS "LibTorch ${SHARDBENCH_TORCH_FOUND_VERSION}: ${SHARDBENCH_TORCH_ROOT}")
add_library(shardbench_torch INTERFACE)
shardbench_fill_torch(shardbench_torch)

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
