// The double's NCCL: communicators, groups, collectives.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tests/comm/elements.h"
#include "tests/comm/nccl/double_state.h"

namespace shardbench::comm {
namespace {

constexpr std::string_view kNames[] = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                       "reduce"};
constexpr std::string_view kOps[] = {"sum", "average", "max"};

}  // namespace

/// "broadcast 3 fp32 root 0", "all_reduce 7 bf16 sum".
std::string NcclDouble::Call::text() const {
  std::string text = fmt::format("{} {} {}", kNames[static_cast<int>(kind)], count, name_of(dtype));
  if (reduces()) text += fmt::format(" {}", kOps[static_cast<int>(op)]);
  if (kind == Kind::kBroadcast || kind == Kind::kReduce) text += fmt::format(" root {}", root);
  return text;
}

bool NcclDouble::Call::reduces() const {
  return kind == Kind::kReduceScatter || kind == Kind::kAllReduce || kind == Kind::kReduce;
}

std::vector<std::string> NcclDouble::calls(int rank) {
  const std::lock_guard lock(mutex_);
  return calls_[rank];
}

void NcclDouble::fail(const std::string& call, int n, NcclCode code) {
  const std::lock_guard lock(mutex_);
  failures_[call][n] = code;
}

void NcclDouble::set_async_error(int rank, NcclCode code) {
  const std::lock_guard lock(mutex_);
  async_errors_[rank] = code;
}

void NcclDouble::hang() {
  const std::lock_guard lock(mutex_);
  hanging_ = true;
}

void NcclDouble::set_launch_delay(int looks) {
  const std::lock_guard lock(mutex_);
  launch_delay_ = looks;
}

NcclCode NcclDouble::injected(const std::string& call) {
  auto& planned = failures_[call];
  NcclCode code = NcclCode::kSuccess;
  std::map<int, NcclCode> left;
  for (const auto& [n, failure] : planned) {
    if (n == 0) code = failure;
    if (n > 0) left[n - 1] = failure;
  }
  planned = left;
  return code;
}

bool NcclDouble::is_alive(NcclHandle comm, const std::string& call) {
  if (comms_.count(static_cast<Comm*>(comm)) > 0) return true;
  note(call + " of a communicator that is gone");
  return false;
}

NcclCode NcclDouble::unique_id(std::string& id) {
  const std::lock_guard lock(mutex_);
  const NcclCode code = injected("unique_id");
  id = std::string("id\0\xff", 4) + std::to_string(next_id_++);  // any bytes may come
  return code;
}

NcclCode NcclDouble::init_rank(NcclHandle& comm, int world_size, const std::string& id, int rank) {
  const std::lock_guard lock(mutex_);
  const NcclCode code = injected("init_rank");
  if (code != NcclCode::kSuccess) return code;
  std::unique_ptr<World>& world = worlds_[id];
  if (world == nullptr) world = std::make_unique<World>(world_size);
  if (world->ranks[static_cast<std::size_t>(rank)] != nullptr) note("a rank that joins twice");
  auto* const own = new Comm{world.get(), rank};
  world->ranks[static_cast<std::size_t>(rank)] = own;
  ++world->joined;
  comms_.insert(own);
  comm = own;
  return NcclCode::kInProgress;
}

NcclCode NcclDouble::async_error(NcclHandle comm, NcclCode& state) {
  const std::lock_guard lock(mutex_);
  if (!is_alive(comm, "async_error")) return NcclCode::kInvalidArgument;
  auto& own = *static_cast<Comm*>(comm);
  const auto error = async_errors_.find(own.rank);
  state = NcclCode::kSuccess;
  if (error != async_errors_.end()) {
    state = error->second;
  } else if (own.world->joined < own.world->ranks.size()) {
    state = NcclCode::kInProgress;
  } else if (own.pending != nullptr && own.looks_left-- > 0) {
    state = NcclCode::kInProgress;
  } else if (own.pending != nullptr) {
    flush(own);
  }
  return NcclCode::kSuccess;
}

NcclCode NcclDouble::finalize(NcclHandle comm) {
  const std::lock_guard lock(mutex_);
  if (!is_alive(comm, "finalize")) return NcclCode::kInvalidArgument;
  static_cast<Comm*>(comm)->finalized = true;
  return NcclCode::kInProgress;
}

NcclCode NcclDouble::destroy(NcclHandle comm) {
  const std::lock_guard lock(mutex_);
  if (!is_alive(comm, "destroy")) return NcclCode::kInvalidArgument;
  if (!static_cast<Comm*>(comm)->finalized) note("destroy before finalize");
  remove(*static_cast<Comm*>(comm));
  return NcclCode::kSuccess;
}

NcclCode NcclDouble::abort(NcclHandle comm) {
  const std::lock_guard lock(mutex_);
  if (!is_alive(comm, "abort")) return NcclCode::kInvalidArgument;
  static_cast<Comm*>(comm)->world->aborted.insert(static_cast<Comm*>(comm)->rank);
  remove(*static_cast<Comm*>(comm));
  return NcclCode::kSuccess;
}

/// The communicator is gone; its calls that are queued keep its record alive.
void NcclDouble::remove(Comm& comm) {
  comms_.erase(&comm);
  comm.world->gone.emplace_back(&comm);
}

NcclCode NcclDouble::group_start() {
  const std::lock_guard lock(mutex_);
  const NcclCode code = injected("group_start");
  if (!in_group_.insert(std::this_thread::get_id()).second) note("group_start inside a group");
  return code;
}

NcclCode NcclDouble::group_end() {
  const std::lock_guard lock(mutex_);
  const auto thread = std::this_thread::get_id();
  if (in_group_.erase(thread) == 0) {
    note("group_end without group_start");
    return NcclCode::kInvalidUsage;
  }
  Group group = std::move(open_groups_[thread]);
  open_groups_.erase(thread);
  const NcclCode code = injected("group_end");
  if (code != NcclCode::kSuccess || group.empty()) return code;
  Comm& comm = *group.front().comm;
  calls_[comm.rank].push_back("group_end");
  return submit(comm, std::make_shared<const Group>(std::move(group)));
}

NcclCode NcclDouble::queue(Call call) {
  const std::lock_guard lock(mutex_);
  const std::string name(kNames[static_cast<int>(call.kind)]);
  if (!is_alive(call.comm, name)) return NcclCode::kInvalidArgument;
  const NcclCode code = injected(name);
  if (code != NcclCode::kSuccess) return code;
  if (call.comm->pending != nullptr) note(name + " while the call before is still on its way");
  if (call.comm->finalized) note(name + " after finalize");
  std::vector<std::string>& log = calls_[call.comm->rank];
  const auto thread = std::this_thread::get_id();
  if (in_group_.count(thread) > 0) {
    Group& group = open_groups_[thread];
    if (group.empty()) log.push_back("group_start");
    if (!group.empty() && group.front().stream != call.stream) note("a group over two streams");
    log.push_back(call.text());
    group.push_back(call);
    return NcclCode::kSuccess;
  }
  log.push_back(call.text());
  Comm& comm = *call.comm;
  return submit(comm, std::make_shared<const Group>(Group{call}));
}

/// Puts the calls on their stream, at once or after some looks at async_error.
NcclCode NcclDouble::submit(Comm& comm, std::shared_ptr<const Group> group) {
  comm.pending = std::move(group);
  comm.looks_left = launch_delay_;
  if (launch_delay_ > 0) return NcclCode::kInProgress;
  flush(comm);
  return NcclCode::kSuccess;
}

void NcclDouble::flush(Comm& comm) {
  const std::shared_ptr<const Group> group = std::move(comm.pending);
  comm.pending = nullptr;
  Stream& stream = *group->front().stream;
  comm.queued.push_back({group, &stream, stream.queued + 1});
  enqueue(stream, {.group = group, .index = comm.queued.size() - 1});
}

/// The collective at the front of `stream`: executed for all ranks at once, when every rank's
/// stream has come to its part.
bool NcclDouble::execute_group(Stream& stream, const Node& node) {
  World& world = *node.group->front().comm->world;
  if (!world.aborted.empty()) return true;  // ends without a result
  if (hanging_) return false;
  for (Comm* const comm : world.ranks) {
    if (comm->queued.size() <= node.index) return false;
    const Queued& part = comm->queued[node.index];
    if (part.stream != &stream && !advance(*part.stream, part.position - 1)) return false;
  }
  run_group(world, node.index);
  for (Comm* const comm : world.ranks) {
    Stream& done = *comm->queued[node.index].stream;
    done.nodes.pop_front();
    ++done.executed;
  }
  return true;
}

void NcclDouble::run_group(const World& world, std::size_t index) {
  const Group& first = *world.ranks[0]->queued[index].group;
  for (const Comm* const comm : world.ranks) {
    const Group& other = *comm->queued[index].group;
    const bool same = std::equal(first.begin(), first.end(), other.begin(), other.end(),
                                 [](const Call& a, const Call& b) { return a.text() == b.text(); });
    if (!same)
      return note("ranks called different collectives: " + first.front().text() + " against " +
                  other.front().text());
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::vector<const Call*> calls;
    for (const Comm* const comm : world.ranks) calls.push_back(&(*comm->queued[index].group)[i]);
    run_calls(calls);
  }
}

/// One collective over all ranks' calls.
void NcclDouble::run_calls(const std::vector<const Call*>& calls) {
  const Call& any = *calls.front();
  const std::size_t ranks = calls.size();
  const std::size_t part = any.count * size_of(any.dtype);
  const bool cut = any.kind == Kind::kReduceScatter;
  const std::size_t sent = cut ? part * ranks : part;
  const std::size_t received = any.kind == Kind::kAllGather ? part * ranks : part;
  const bool one_sends = any.kind == Kind::kBroadcast;
  const bool one_receives = any.kind == Kind::kReduce;
  std::vector<std::vector<std::byte>> inputs;  // as they were before anybody's result
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const bool is_root = static_cast<int>(rank) == any.root;
    const auto* const send = static_cast<const std::byte*>(calls[rank]->send);
    inputs.emplace_back();
    if (!one_sends || is_root) {
      check_range(send, sent, true, any.text());
      inputs.back().assign(send, send + sent);
    }
    if (!one_receives || is_root) check_range(calls[rank]->receive, received, true, any.text());
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (one_receives && static_cast<int>(rank) != any.root) continue;
    auto* const to = static_cast<std::byte*>(calls[rank]->receive);
    if (any.kind == Kind::kAllGather) {
      for (std::size_t r = 0; r < ranks; ++r) std::memcpy(to + r * part, inputs[r].data(), part);
    } else if (one_sends) {
      std::memcpy(to, inputs[static_cast<std::size_t>(any.root)].data(), part);
    } else {
      reduce_inputs(any, inputs, cut ? rank * part : 0, to);
    }
  }
}

void NcclDouble::reduce_inputs(const Call& call, const std::vector<std::vector<std::byte>>& inputs,
                               std::size_t offset, std::byte* to) {
  constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax};
  const ReduceOp op = kReduceOps[static_cast<int>(call.op)];
  std::vector<double> values(inputs.size());
  for (std::size_t i = 0; i < call.count; ++i) {
    const std::size_t at = i * size_of(call.dtype);
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      values[rank] = load_element(call.dtype, inputs[rank].data() + offset + at);
    }
    store_element(call.dtype, reference_reduce(call.dtype, op, values), to + at);
  }
}

namespace {

NcclDouble::Comm* handle(NcclHandle comm) { return static_cast<NcclDouble::Comm*>(comm); }
NcclDouble::Stream* handle_of_stream(GpuStream stream) {
  return static_cast<NcclDouble::Stream*>(stream);
}

}  // namespace

NcclCode NcclDouble::all_gather(const void* send, void* receive, std::size_t count, DType dtype,
                                NcclHandle comm, GpuStream stream) {
  return queue({Kind::kAllGather, send, receive, count, dtype, Op::kSum, 0, handle(comm),
                handle_of_stream(stream)});
}

NcclCode NcclDouble::reduce_scatter(const void* send, void* receive, std::size_t count, DType dtype,
                                    Op op, NcclHandle comm, GpuStream stream) {
  return queue({Kind::kReduceScatter, send, receive, count, dtype, op, 0, handle(comm),
                handle_of_stream(stream)});
}

NcclCode NcclDouble::all_reduce(const void* send, void* receive, std::size_t count, DType dtype,
                                Op op, NcclHandle comm, GpuStream stream) {
  return queue({Kind::kAllReduce, send, receive, count, dtype, op, 0, handle(comm),
                handle_of_stream(stream)});
}

NcclCode NcclDouble::broadcast(const void* send, void* receive, std::size_t count, DType dtype,
                               int root, NcclHandle comm, GpuStream stream) {
  return queue({Kind::kBroadcast, send, receive, count, dtype, Op::kSum, root, handle(comm),
                handle_of_stream(stream)});
}

NcclCode NcclDouble::reduce(const void* send, void* receive, std::size_t count, DType dtype, Op op,
                            int root, NcclHandle comm, GpuStream stream) {
  return queue({Kind::kReduce, send, receive, count, dtype, op, root, handle(comm),
                handle_of_stream(stream)});
}

std::string NcclDouble::describe(NcclCode code, NcclHandle) {
  return fmt::format("nccl error {}", static_cast<int>(code));
}

}  // namespace shardbench::comm
