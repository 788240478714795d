#include <nccl.h>

#include <algorithm>

#include "common/comm/nccl/library/parts.h"

namespace shardbench::comm {
namespace {

static_assert(static_cast<int>(NcclCode::kSuccess) == ncclSuccess);
static_assert(static_cast<int>(NcclCode::kUnhandledCudaError) == ncclUnhandledCudaError);
static_assert(static_cast<int>(NcclCode::kSystemError) == ncclSystemError);
static_assert(static_cast<int>(NcclCode::kInternalError) == ncclInternalError);
static_assert(static_cast<int>(NcclCode::kInvalidArgument) == ncclInvalidArgument);
static_assert(static_cast<int>(NcclCode::kInvalidUsage) == ncclInvalidUsage);
static_assert(static_cast<int>(NcclCode::kRemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclCode::kInProgress) == ncclInProgress);

NcclCode code_of(ncclResult_t result) { return static_cast<NcclCode>(result); }
ncclComm_t comm_of(NcclHandle comm) { return static_cast<ncclComm_t>(comm); }
cudaStream_t stream_of(GpuStream stream) { return static_cast<cudaStream_t>(stream); }

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kInt64:
      return ncclInt64;
    case DType::kUInt8:
      return ncclUint8;
  }
  return ncclNumTypes;  // NCCL refuses it
}

ncclRedOp_t op_of(NcclApi::Op op) {
  switch (op) {
    case NcclApi::Op::kSum:
      return ncclSum;
    case NcclApi::Op::kAverage:
      return ncclAvg;
    case NcclApi::Op::kMax:
      return ncclMax;
  }
  return ncclNumOps;
}

class NcclLibrary : public NcclApi {
 public:
  NcclCode unique_id(std::string& id) override {
    ncclUniqueId made{};
    const NcclCode code = code_of(ncclGetUniqueId(&made));
    id.assign(made.internal, sizeof(made.internal));
    return code;
  }
  NcclCode init_rank(NcclHandle& comm, int world_size, const std::string& id, int rank) override {
    ncclUniqueId given{};
    if (id.size() != sizeof(given.internal)) return NcclCode::kInvalidArgument;
    std::copy(id.begin(), id.end(), given.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const NcclCode code = code_of(ncclCommInitRankConfig(&made, world_size, given, rank, &config));
    comm = made;
    return code;
  }
  NcclCode async_error(NcclHandle comm, NcclCode& state) override {
    ncclResult_t result = ncclSuccess;
    const NcclCode code = code_of(ncclCommGetAsyncError(comm_of(comm), &result));
    state = code_of(result);
    return code;
  }
  NcclCode finalize(NcclHandle comm) override { return code_of(ncclCommFinalize(comm_of(comm))); }
  NcclCode destroy(NcclHandle comm) override { return code_of(ncclCommDestroy(comm_of(comm))); }
  NcclCode abort(NcclHandle comm) override { return code_of(ncclCommAbort(comm_of(comm))); }

  NcclCode group_start() override { return code_of(ncclGroupStart()); }
  NcclCode group_end() override { return code_of(ncclGroupEnd()); }
  NcclCode all_gather(const void* send, void* receive, std::size_t count, DType dtype,
                      NcclHandle comm, GpuStream stream) override {
    return code_of(
        ncclAllGather(send, receive, count, type_of(dtype), comm_of(comm), stream_of(stream)));
  }
  NcclCode reduce_scatter(const void* send, void* receive, std::size_t count, DType dtype, Op op,
                          NcclHandle comm, GpuStream stream) override {
    return code_of(ncclReduceScatter(send, receive, count, type_of(dtype), op_of(op), comm_of(comm),
                                     stream_of(stream)));
  }
  NcclCode all_reduce(const void* send, void* receive, std::size_t count, DType dtype, Op op,
                      NcclHandle comm, GpuStream stream) override {
    return code_of(ncclAllReduce(send, receive, count, type_of(dtype), op_of(op), comm_of(comm),
                                 stream_of(stream)));
  }
  NcclCode broadcast(const void* send, void* receive, std::size_t count, DType dtype, int root,
                     NcclHandle comm, GpuStream stream) override {
    return code_of(ncclBroadcast(send, receive, count, type_of(dtype), root, comm_of(comm),
                                 stream_of(stream)));
  }
  NcclCode reduce(const void* send, void* receive, std::size_t count, DType dtype, Op op, int root,
                  NcclHandle comm, GpuStream stream) override {
    return code_of(ncclReduce(send, receive, count, type_of(dtype), op_of(op), root, comm_of(comm),
                              stream_of(stream)));
  }

  std::string describe(NcclCode code, NcclHandle comm) override {
    std::string text = ncclGetErrorString(static_cast<ncclResult_t>(code));
    const char* const last = comm == nullptr ? nullptr : ncclGetLastError(comm_of(comm));
    if (last == nullptr || *last == '\0') return text;
    text += ": ";
    text += last;
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }
};

}  // namespace

NcclApi& nccl_library() {
  static NcclLibrary library;
  return library;
}

}  // namespace shardbench::comm
