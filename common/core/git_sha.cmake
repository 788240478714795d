# Writes OUTPUT, a header that defines SHARDBENCH_GIT_SHA, and touches it only when the commit
# changes, so that a new commit recompiles one small file. Run as: cmake -DSOURCE=... -DOUTPUT=... -P
set(sha "")
find_program(GIT_PROGRAM git)
if(GIT_PROGRAM)
  execute_process(COMMAND ${GIT_PROGRAM} rev-parse HEAD WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE sha ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed)
  if(failed)
    set(sha "")
  else()
    execute_process(COMMAND ${GIT_PROGRAM} status --porcelain --untracked-files=no
                    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND sha "-dirty")
    endif()
  endif()
endif()
if(NOT sha)
  set(sha "unknown")
endif()
set(text "#pragma once\n#define SHARDBENCH_GIT_SHA \"${sha}\"\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()
