# Every MPI implementation that is installed, each as a small library of its own (they are not
# binary compatible): libshardbench_mpi_IMPLEMENTATION.so, which the program opens when it is started
# by that implementation's mpirun. SHARDBENCH_BUILT_MPI lists them. None is needed.
enable_language(C)
find_package(PkgConfig QUIET)

# Finds `implementation` through the first pkg-config module there is; gives the imported target
# shardbench_mpi_headers_IMPLEMENTATION.
function(shardbench_find_mpi implementation)
  if(NOT PkgConfig_FOUND)
    return()
  endif()
  pkg_search_module(MPI_${implementation} QUIET IMPORTED_TARGET ${ARGN})
  if(MPI_${implementation}_FOUND)
    add_library(shardbench_mpi_${implementation}_native INTERFACE)
    target_link_libraries(shardbench_mpi_${implementation}_native
                          INTERFACE PkgConfig::MPI_${implementation})
    message(STATUS "MPI: ${implementation} ${MPI_${implementation}_VERSION}")
  endif()
endfunction()

# Without pkg-config: the MPI of the compiler wrapper that CMake finds, told apart by its header.
function(shardbench_find_default_mpi)
  find_package(MPI QUIET COMPONENTS C)
  if(NOT MPI_C_FOUND)
    return()
  endif()
  include(CheckCSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_C)
  foreach(_pair "openmpi:OPEN_MPI" "mpich:MPICH_VERSION")
    string(REPLACE ":" ";" _pair ${_pair})
    list(GET _pair 0 _implementation)
    list(GET _pair 1 _macro)
    check_c_source_compiles("#include <mpi.h>
#ifndef ${_macro}
#error another one
#endif
int main(void) { return 0; }" SHARDBENCH_DEFAULT_MPI_IS_${_implementation})
    if(SHARDBENCH_DEFAULT_MPI_IS_${_implementation})
      add_library(shardbench_mpi_${_implementation}_native INTERFACE)
      target_link_libraries(shardbench_mpi_${_implementation}_native INTERFACE MPI::MPI_C)
      message(STATUS "MPI: ${_implementation} (${MPI_C_LIBRARIES})")
    endif()
  endforeach()
endfunction()

shardbench_find_mpi(openmpi ompi-c ompi)
shardbench_find_mpi(mpich mpich)
if(NOT TARGET shardbench_mpi_openmpi_native AND NOT TARGET shardbench_mpi_mpich_native)
  shardbench_find_default_mpi()
endif()

set(SHARDBENCH_BUILT_MPI "")
foreach(_implementation openmpi mpich)
  if(TARGET shardbench_mpi_${_implementation}_native)
    list(APPEND SHARDBENCH_BUILT_MPI ${_implementation})
  endif()
endforeach()
if(NOT SHARDBENCH_BUILT_MPI)
  message(STATUS "MPI: none found, built without it")
endif()
