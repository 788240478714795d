#include "common/comm/nccl/mirror.h"

namespace shardbench::comm {
namespace {

void copy(const CopyContext& context, std::byte* to, const std::byte* from, std::size_t bytes) {
  check_cuda(context.cuda, context.cuda.memcpy_async(to, from, bytes, context.copies.get()),
             "cudaMemcpyAsync");
}

void finish(const CopyContext& context) {
  const GpuEvent event = context.copies.mark();
  context.await(event);
  context.copies.recycle(event);
}

}  // namespace

void HostMirror::upload(const CopyContext& context) const {
  copy(context, device(), host_, bytes_);
  finish(context);
}

void HostMirror::download(const CopyContext& context, const std::vector<ByteRange>& ranges) const {
  for (const ByteRange& range : ranges) {
    copy(context, host_ + range.begin, device() + range.begin, range.end - range.begin);
  }
  finish(context);
}

}  // namespace shardbench::comm
