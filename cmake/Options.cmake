# Warnings, sanitizers, compiler cache and linker, on one interface target.
add_library(shardbench_options INTERFACE)
target_include_directories(shardbench_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(shardbench_options INTERFACE -Wall -Wextra -Wshadow -Wconversion
                                                    $<$<BOOL:${SHARDBENCH_WERROR}>:-Werror>)
# GCC 12 sees overlapping copies in any "text" + std::string (GCC bug 105651).
if(SHARDBENCH_WERROR AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(shardbench_options INTERFACE -Wno-error=restrict)
endif()
if(SHARDBENCH_GUARD_PEERS)
  target_compile_definitions(shardbench_options INTERFACE SHARDBENCH_GUARD_PEERS=1)
endif()
if(SHARDBENCH_SANITIZE)
  if(SHARDBENCH_WITH_TORCH)
    message(FATAL_ERROR "SHARDBENCH_SANITIZE needs SHARDBENCH_WITH_TORCH=OFF: LibTorch itself is "
                        "not instrumented, so reports from code that calls it mean nothing")
  endif()
  target_compile_options(shardbench_options INTERFACE -fsanitize=${SHARDBENCH_SANITIZE}
                                                      -fno-omit-frame-pointer)
  target_link_options(shardbench_options INTERFACE -fsanitize=${SHARDBENCH_SANITIZE})
endif()

# For loops whose bits must not depend on the instruction set (common/core/simd.h): no contraction
# into FMA. A square root that need not set errno is what lets them be vectorised.
set(SHARDBENCH_EXACT_FLAGS -ffp-contract=off -fno-math-errno)

# -fPIC for executables too (CMake would give them -fPIE): one precompiled header serves all only if
# it is used with the settings it was made with.
add_compile_options(-fPIC)

# ccache: paths below the checkout are made relative, so that clones in other folders share hits;
# the sloppiness and -fpch-preprocess are what a precompiled header needs (ccache manual,
# "Precompiled headers").
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE_PROGRAM})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# shardbench_library(name SOURCES ... [LINK ...] [TORCH]): one room as a static library. Outside
# bench/ and tests/ it is installed, with the name shardbench::ROOM (see Install.cmake).
function(shardbench_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:shardbench_options> fmt::fmt ${ARG_LINK})
  if(ARG_TORCH)
    target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:shardbench_torch>
                                         $<INSTALL_INTERFACE:shardbench::torch>)
    target_precompile_headers(${name} REUSE_FROM shardbench_torch_pch)
  endif()
  file(RELATIVE_PATH _folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(NOT _folder MATCHES "^(bench|tests)(/|$)")
    set_property(GLOBAL APPEND PROPERTY SHARDBENCH_INSTALLED_LIBRARIES ${name})
  endif()
endfunction()
