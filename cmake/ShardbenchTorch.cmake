# How shardbench finds LibTorch, in its own build and in the package that is installed.
#
# shardbench_find_torch(OLDEST VERSION [HINTS FOLDER...]): CPU side only, libtorch_cpu and libc10
# (find_package(Torch) would pull in CUDA). Looks in CMAKE_PREFIX_PATH (variable or environment: a
# plain LibTorch folder or a site-packages/torch), then in the hints. Sets in the caller
# SHARDBENCH_TORCH_ROOT and SHARDBENCH_TORCH_FOUND_VERSION, or SHARDBENCH_TORCH_ERROR to a line that
# says what is wrong.
#
# shardbench_fill_torch(TARGET): gives an interface target what code needs that uses it.

function(shardbench_find_torch)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "OLDEST" "HINTS")
  set(SHARDBENCH_TORCH_ERROR "" PARENT_SCOPE)
  string(REPLACE ":" ";" env_prefixes "$ENV{CMAKE_PREFIX_PATH}")
  find_path(SHARDBENCH_TORCH_INCLUDE ATen/ATen.h
            HINTS ${CMAKE_PREFIX_PATH} ${env_prefixes} ${ARG_HINTS}
            PATH_SUFFIXES include NO_DEFAULT_PATH)
  find_path(SHARDBENCH_TORCH_INCLUDE ATen/ATen.h PATH_SUFFIXES include)
  if(NOT SHARDBENCH_TORCH_INCLUDE)
    set(SHARDBENCH_TORCH_ERROR "LibTorch not found: set CMAKE_PREFIX_PATH to an unpacked LibTorch \
(the folder that holds include/ and lib/)" PARENT_SCOPE)
    return()
  endif()
  get_filename_component(root ${SHARDBENCH_TORCH_INCLUDE} DIRECTORY)
  set(SHARDBENCH_TORCH_ROOT ${root} PARENT_SCOPE)
  foreach(library libtorch_cpu.so libc10.so)
    if(NOT EXISTS ${root}/lib/${library})
      set(SHARDBENCH_TORCH_ERROR "LibTorch at ${root} lacks lib/${library}: unpack it again, or \
set CMAKE_PREFIX_PATH to a complete one" PARENT_SCOPE)
      return()
    endif()
  endforeach()

  # Its version, from the header's three numbers, against the oldest one that is supported.
  set(header ${SHARDBENCH_TORCH_INCLUDE}/torch/headeronly/version.h)
  if(NOT EXISTS ${header})
    set(header ${SHARDBENCH_TORCH_INCLUDE}/torch/csrc/api/include/torch/version.h)
  endif()
  set(version "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${header} line REGEX "#define TORCH_VERSION_${part} [0-9]+")
    string(REGEX MATCH "[0-9]+" number "${line}")
    list(APPEND version "${number}")
  endforeach()
  list(JOIN version "." version)
  set(SHARDBENCH_TORCH_FOUND_VERSION ${version} PARENT_SCOPE)
  if(version VERSION_LESS ARG_OLDEST)
    set(SHARDBENCH_TORCH_ERROR "LibTorch ${version} at ${root} is too old: ${ARG_OLDEST} or newer \
is needed" PARENT_SCOPE)
  endif()
endfunction()

function(shardbench_fill_torch target)
  target_include_directories(${target} SYSTEM INTERFACE
    ${SHARDBENCH_TORCH_ROOT}/include ${SHARDBENCH_TORCH_ROOT}/include/torch/csrc/api/include)
  # LibTorch brings headers of an fmt of its own (with its own inline namespace) but no library.
  target_compile_definitions(${target} INTERFACE FMT_HEADER_ONLY=1)
  # libtorch_cpu of a CUDA wheel needs libcudart and libcupti, which lie beside torch; its own
  # RPATH finds them at run time, the linker needs to be told.
  file(GLOB nvidia_libs ${SHARDBENCH_TORCH_ROOT}/../nvidia/*/lib)
  set(rpath_links ${SHARDBENCH_TORCH_ROOT}/lib ${nvidia_libs})
  list(TRANSFORM rpath_links PREPEND "-Wl,-rpath-link,")
  target_link_libraries(${target} INTERFACE
    ${SHARDBENCH_TORCH_ROOT}/lib/libtorch_cpu.so ${SHARDBENCH_TORCH_ROOT}/lib/libc10.so
    ${rpath_links})
endfunction()
