# CUDA's runtime and NCCL for libshardbench_nccl.so, the part of the nccl backend that needs them.
# SHARDBENCH_NCCL: AUTO builds it where both are found, ON also fetches the NCCL that versions.env
# names (cmake/fetch_nccl.sh) and fails where CUDA is missing, OFF never does. Nothing else depends
# on it. Sets SHARDBENCH_BUILT_NCCL; then there are the targets shardbench_cudart and
# shardbench_nccl_native, and SHARDBENCH_CUDA_RPATH, the folders of their libraries.
set(SHARDBENCH_NCCL AUTO CACHE STRING "Build the library of the nccl backend: AUTO, ON or OFF")
set(SHARDBENCH_BUILT_NCCL OFF)
set(SHARDBENCH_CUDA_RPATH "")

# The toolkit, or the runtime and headers that lie beside LibTorch's wheel.
function(shardbench_find_cudart)
  find_package(CUDAToolkit QUIET)
  file(GLOB wheels ${SHARDBENCH_TORCH_ROOT}/../nvidia/*)
  find_path(SHARDBENCH_CUDART_INCLUDE cuda_runtime_api.h
            HINTS ${CUDAToolkit_INCLUDE_DIRS} ${wheels} PATH_SUFFIXES include NO_CACHE)
  find_library(SHARDBENCH_CUDART_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${wheels} PATH_SUFFIXES lib NO_CACHE)
  find_path(SHARDBENCH_NVTX_INCLUDE nvtx3/nvToolsExt.h
            HINTS ${CUDAToolkit_INCLUDE_DIRS} ${wheels} PATH_SUFFIXES include NO_CACHE)
  if(NOT SHARDBENCH_CUDART_INCLUDE OR NOT SHARDBENCH_CUDART_LIBRARY OR NOT SHARDBENCH_NVTX_INCLUDE)
    return()
  endif()
  add_library(shardbench_cudart INTERFACE)
  target_include_directories(shardbench_cudart SYSTEM INTERFACE ${SHARDBENCH_CUDART_INCLUDE}
                                                                ${SHARDBENCH_NVTX_INCLUDE})
  target_link_libraries(shardbench_cudart INTERFACE ${SHARDBENCH_CUDART_LIBRARY})
  get_filename_component(folder ${SHARDBENCH_CUDART_LIBRARY} DIRECTORY)
  list(APPEND SHARDBENCH_CUDA_RPATH ${folder})
  set(SHARDBENCH_CUDA_RPATH ${SHARDBENCH_CUDA_RPATH} PARENT_SCOPE)
endfunction()

# The NCCL that LibTorch itself loads comes first, so that a process has one only.
function(shardbench_find_nccl)
  set(fetched ${PROJECT_SOURCE_DIR}/build/nccl)
  if(SHARDBENCH_NCCL STREQUAL "ON")
    execute_process(COMMAND bash ${PROJECT_SOURCE_DIR}/cmake/fetch_nccl.sh ${fetched}
                    RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "cmake/fetch_nccl.sh could not fetch NCCL: see above")
    endif()
  endif()
  set(hints ${SHARDBENCH_TORCH_ROOT}/../nvidia/nccl ${fetched})
  find_path(SHARDBENCH_NCCL_INCLUDE nccl.h HINTS ${hints} PATH_SUFFIXES include
            NO_DEFAULT_PATH NO_CACHE)
  find_library(SHARDBENCH_NCCL_LIBRARY NAMES libnccl.so.2 HINTS ${hints} PATH_SUFFIXES lib
               NO_DEFAULT_PATH NO_CACHE)
  if(NOT SHARDBENCH_NCCL_INCLUDE OR NOT SHARDBENCH_NCCL_LIBRARY)
    return()
  endif()
  add_library(shardbench_nccl_native INTERFACE)
  target_include_directories(shardbench_nccl_native SYSTEM BEFORE
                             INTERFACE ${SHARDBENCH_NCCL_INCLUDE})
  target_link_libraries(shardbench_nccl_native INTERFACE ${SHARDBENCH_NCCL_LIBRARY})
  get_filename_component(folder ${SHARDBENCH_NCCL_LIBRARY} DIRECTORY)
  list(PREPEND SHARDBENCH_CUDA_RPATH ${folder})
  set(SHARDBENCH_CUDA_RPATH ${SHARDBENCH_CUDA_RPATH} PARENT_SCOPE)
endfunction()

if(NOT SHARDBENCH_NCCL MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "SHARDBENCH_NCCL is '${SHARDBENCH_NCCL}': give AUTO, ON or OFF")
endif()
if(NOT SHARDBENCH_NCCL STREQUAL "OFF" AND NOT SHARDBENCH_SANITIZE)
  shardbench_find_cudart()
  if(TARGET shardbench_cudart)
    shardbench_find_nccl()
  endif()
  if(TARGET shardbench_nccl_native)
    set(SHARDBENCH_BUILT_NCCL ON)
  elseif(SHARDBENCH_NCCL STREQUAL "ON")
    message(FATAL_ERROR "SHARDBENCH_NCCL is ON but CUDA's runtime was not found: install the CUDA "
                        "toolkit, or set CUDAToolkit_ROOT to its folder")
  endif()
endif()
message(STATUS "NCCL backend: ${SHARDBENCH_BUILT_NCCL}")
