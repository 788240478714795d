#include "common/ops/openblas.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

#include "common/core/error.h"

namespace shardbench::ops::openblas {
namespace {

// As cblas.h of a library with 32-bit dimensions has them.
constexpr int kRowMajor = 101;
constexpr int kAsItIs = 111;
constexpr int kTransposed = 112;
using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                       float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                       float* c, int ldc);

std::string library() {
  if (const char* const given = std::getenv("SHARDBENCH_OPENBLAS")) return given;
#ifdef SHARDBENCH_OPENBLAS_LIBRARY
  return SHARDBENCH_OPENBLAS_LIBRARY;
#else
  return "";
#endif
}

/// Opened with its names to itself: LibTorch brings functions of the same names. It would start a
/// thread per core as soon as it is opened.
Sgemm open_sgemm() {
  const std::string path = library();
  if (path.empty()) return nullptr;
  constexpr const char* kThreads = "OPENBLAS_NUM_THREADS";
  const char* const before = std::getenv(kThreads);
  const std::string restored = before == nullptr ? "" : before;
  setenv(kThreads, "1", 1);
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  before == nullptr ? unsetenv(kThreads) : setenv(kThreads, restored.c_str(), 1);
  if (handle == nullptr) return nullptr;
  for (const char* const name : {"scipy_cblas_sgemm", "cblas_sgemm"}) {
    if (void* const function = dlsym(handle, name)) return reinterpret_cast<Sgemm>(function);
  }
  return nullptr;
}

Sgemm sgemm() {
  static const Sgemm function = open_sgemm();
  return function;
}

int to_int(std::int64_t dimension) {
  SHARDBENCH_CHECK_LE(dimension, std::int64_t{std::numeric_limits<int>::max()});
  return static_cast<int>(dimension);
}

/// How BLAS is told of a matrix in row-major order.
struct Operand {
  int transpose = kAsItIs;
  int leading = 1;

  explicit Operand(const at::Tensor& matrix) {
    const bool is_transposed = matrix.stride(1) != 1 && matrix.size(1) != 1;
    SHARDBENCH_CHECK(!is_transposed || matrix.stride(0) == 1 || matrix.size(0) == 1);
    transpose = is_transposed ? kTransposed : kAsItIs;
    const int row = is_transposed ? 1 : 0;
    // The stride of a single row or column says nothing, and may be too small for BLAS.
    leading = to_int(std::max(matrix.stride(row), matrix.size(1 - row)));
  }
};

}  // namespace

bool available() { return at::get_num_threads() == 1 && sgemm() != nullptr; }

void matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool accumulate) {
  SHARDBENCH_CHECK(a.size(1) == b.size(0) && c.size(0) == a.size(0) && c.size(1) == b.size(1));
  const Operand left(a), right(b), result(c);
  SHARDBENCH_CHECK_EQ(result.transpose, kAsItIs);
  sgemm()(kRowMajor, left.transpose, right.transpose, to_int(c.size(0)), to_int(c.size(1)),
          to_int(a.size(1)), 1.0f, a.const_data_ptr<float>(), left.leading,
          b.const_data_ptr<float>(), right.leading, accumulate ? 1.0f : 0.0f,
          c.mutable_data_ptr<float>(), result.leading);
}

}  // namespace shardbench::ops::openblas
