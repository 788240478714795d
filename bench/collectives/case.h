#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/link.h"
#include "common/core/dtype.h"

namespace shardbench::bench {

/// A fault planted for tests and demonstrations: `KIND@RANK,ROW`. `wrong` changes one element of
/// the rank's output before it is checked; `kill` and `stall` end or stop the rank before the row.
struct CollectivesFault {
  enum class Kind { kWrong, kKill, kStall } kind = Kind::kWrong;
  int rank = 0;
  int row = 1;  ///< counts from 1
  /// Throws UserError with the valid form.
  static CollectivesFault parse(const std::string& text);
};

/// What is measured. Sizes are bytes of the full payload.
struct CollectivesRequest {
  std::vector<comm::CollectiveKind> kinds = {
      comm::CollectiveKind::kAllReduce, comm::CollectiveKind::kAllGather,
      comm::CollectiveKind::kReduceScatter, comm::CollectiveKind::kBroadcast,
      comm::CollectiveKind::kReduce};
  std::vector<DType> dtypes = {DType::kFloat32};
  std::vector<comm::ReduceOp> ops = {comm::ReduceOp::kSum};
  std::int64_t min_bytes = 8;
  std::int64_t max_bytes = 64 << 20;
  int factor = 8;               ///< sizes grow by it; 1: by `step_bytes`
  std::int64_t step_bytes = 0;  ///< 0: grow by the factor
  int world_size = 2;
  int root = 0;
  int iterations = 20;
  int warmup = 5;
  int checks = 1;                ///< checked calls per row; 0: none
  bool symmetric = true;         ///< memory that peers reach directly; otherwise through staging
  std::string backend = "auto";  ///< auto, shm, mpi or nccl
  std::optional<comm::LinkModel> link;
  std::chrono::milliseconds timeout{300'000};
  std::optional<CollectivesFault> fault;
};

/// One row of the table.
struct CollectiveCase {
  comm::CollectiveKind kind = comm::CollectiveKind::kAllReduce;
  DType dtype = DType::kFloat32;
  std::optional<comm::ReduceOp> op;  ///< of those that reduce
  int root = -1;                     ///< of those that have one
  std::int64_t count = 0;            ///< elements of the full payload
  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(dtype)); }

  friend bool operator==(const CollectiveCase&, const CollectiveCase&) = default;
};

/// Rows by kind, dtype, operation, size. A size is cut down to whole elements, and one that then
/// stands there already is left out. Throws UserError when a request has no meaning: a size below
/// one element, an average of int64, a root or a fault outside the ranks or rows.
std::vector<CollectiveCase> plan_cases(const CollectivesRequest& request);

/// Throws UserError when the buffers of `request` would not fit into `available_bytes` (0: not
/// known), naming the largest size that does.
void require_memory(const CollectivesRequest& request, std::int64_t available_bytes);
/// Memory that the system says is available, or 0.
std::int64_t available_memory();

/// "8", "64K", "16M", "1G" (powers of 1024). Throws UserError.
std::int64_t parse_bytes(const std::string& flag, const std::string& text);

/// The names on the command line and in results; those of nccl-tests (float, half...) are taken
/// too. Parsers throw UserError.
std::string_view redop_name(comm::ReduceOp op);
comm::ReduceOp parse_redop(const std::string& flag, const std::string& text);
DType parse_dtype(const std::string& flag, const std::string& text);
comm::CollectiveKind parse_kind(const std::string& flag, const std::string& text);

}  // namespace shardbench::bench
