#include "common/core/build_info.h"

#include "shardbench_git_sha.h"

namespace shardbench {

BuildInfo build_info() {
  return {SHARDBENCH_VERSION, SHARDBENCH_GIT_SHA, SHARDBENCH_BUILD_TYPE, SHARDBENCH_COMPILER};
}

}  // namespace shardbench
