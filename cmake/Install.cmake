# cmake --install: libraries, public headers, the program, and a package that find_package finds.
# Headers go below include/shardbench, which is the include folder that users get: paths are those
# of the tree ("fsdp/strategy.h"), too general for a folder that is shared with other packages.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_headers ${CMAKE_INSTALL_INCLUDEDIR}/shardbench)
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/shardbench)

get_property(_libraries GLOBAL PROPERTY SHARDBENCH_INSTALLED_LIBRARIES)
add_library(shardbench_all INTERFACE)
target_link_libraries(shardbench_all INTERFACE ${_libraries})
set_target_properties(shardbench_all PROPERTIES EXPORT_NAME shardbench)
set(SHARDBENCH_COMPONENTS shardbench)
foreach(_library ${_libraries})
  string(REGEX REPLACE "^shardbench_" "" _name ${_library})
  set_target_properties(${_library} PROPERTIES EXPORT_NAME ${_name})
  target_include_directories(${_library} INTERFACE $<INSTALL_INTERFACE:${_headers}>)
  target_compile_features(${_library} INTERFACE cxx_std_20)
  list(APPEND SHARDBENCH_COMPONENTS ${_name})
endforeach()
install(TARGETS ${_libraries} shardbench_all EXPORT shardbench
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT shardbench NAMESPACE shardbench:: FILE shardbenchTargets.cmake
        DESTINATION ${_package})

# Everything but what only the rooms' own sources include.
install(FILES ${PROJECT_SOURCE_DIR}/shardbench.h DESTINATION ${_headers})
install(DIRECTORY common ddp fsdp zero3 DESTINATION ${_headers} FILES_MATCHING PATTERN "*.h"
        REGEX "common/comm/(block_heap|call_shape|call_spec|in_collective|plain_memory|mpi/(call|engine|load|neighbours|options|ranges|reduction|relay|staging_pool|tag|texts|transport)|launch/(control_text|meeting|pass_memory|socket)|link_schedule|reduce|segments|launch/outcome|nccl/(call|cuda_stream|engine|library/parts|link|mirror|plan|queue|scratch|watch)|shm/(call|engine|futex|heap|lanes|peer_window|stream|segment.*))\\.h$" EXCLUDE
        REGEX "common/torch_nn/(leaf|tree)\\.h$" EXCLUDE)

if(TARGET shardbench)
  set_target_properties(shardbench PROPERTIES INSTALL_RPATH ${SHARDBENCH_TORCH_ROOT}/lib)
  install(TARGETS shardbench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/shardbenchConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/shardbenchConfig.cmake INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/shardbenchConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/shardbenchConfig.cmake
              ${PROJECT_BINARY_DIR}/package/shardbenchConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/ShardbenchTorch.cmake
        DESTINATION ${_package})
