#include "common/comm/launch/join.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

#include "common/comm/launch/control_text.h"
#include "common/comm/launch/environment.h"
#include "common/comm/launch/pass_memory.h"
#include "common/comm/shm/segment_job.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

/// Equal in two processes that can share memory by passing it over a local socket: the same boot of
/// the same kernel, and the same network namespace. SHARDBENCH_HOST sets processes of one machine
/// apart as if they were on several.
std::string host_key() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const ssize_t length = readlink("/proc/self/ns/net", space.data(), space.size() - 1);
  const std::string network(space.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return boot + " " + network + " " + read_environment("SHARDBENCH_HOST").value_or("");
}

/// The job of ranks on several hosts: positions of this host's ranks lie in its segment, those of
/// the others are what they told last. An abort goes to every host.
class SpreadJob : public Job {
 public:
  SpreadJob(int world_size, std::vector<int> local, std::shared_ptr<SegmentJob> host,
            Control& control)
      : world_size_(world_size),
        local_(std::move(local)),
        host_(std::move(host)),
        control_(control) {}

  int world_size() const override { return world_size_; }
  void set_position(int rank, Phase phase, std::string_view unit) override {
    host_->set_position(number(rank), phase, unit);
  }
  void enter_collective(int rank, CollectiveKind kind, std::int64_t sequence) override {
    host_->enter_collective(number(rank), kind, sequence);
  }
  void leave_collective(int rank) override { host_->leave_collective(number(rank)); }
  void set_progress(int rank, std::int64_t done) override {
    host_->set_progress(number(rank), done);
  }
  std::int64_t progress() const override { return host_->progress(); }
  void abort(const AbortRecord& record) override {
    const bool first = !host_->is_aborted();
    host_->abort(record);
    if (first) control_.abort(record);
  }
  std::optional<AbortRecord> aborted() const override { return host_->aborted(); }
  void check_alive() const override { host_->check_alive(); }
  std::chrono::milliseconds timeout() const override { return host_->timeout(); }
  AbortRecord position_of(int rank) const override {
    const auto at = std::find(local_.begin(), local_.end(), rank);
    AbortRecord record = at == local_.end()
                             ? control_.sign_of(rank).position
                             : host_->position_of(static_cast<int>(at - local_.begin()));
    record.rank = rank;
    return record;
  }

 private:
  int number(int rank) const {
    const auto at = std::find(local_.begin(), local_.end(), rank);
    SHARDBENCH_CHECK(at != local_.end(), "rank {} is on another host", rank);
    return static_cast<int>(at - local_.begin());
  }

  int world_size_;
  std::vector<int> local_;
  std::shared_ptr<SegmentJob> host_;
  Control& control_;
};

class JoinedGroup : public Group {
 public:
  explicit JoinedGroup(const JoinOptions& options)
      : options_(options),
        control_(Control::connect({options.rank, options.world_size, options.timeout,
                                   options.extra_address, options.share})) {
    control_->start({[this] { return sign(); },
                     [this](int rank, const AbortRecord& told) { return last_seen(rank, told); },
                     [this](const AbortRecord& record) { on_abort(record); }});
    find_hosts();
    const auto segment = share_segment();
    job_ = host_count_ == 1
               ? std::static_pointer_cast<Job>(segment)
               : std::make_shared<SpreadJob>(options.world_size, local_, segment, *control_);
    const std::lock_guard lock(mutex_);
    host_job_ = segment;
    if (early_abort_) host_job_->abort(*early_abort_);
  }

  ~JoinedGroup() override {
    // The control plane's thread looks at the members below it.
    control_.reset();
  }

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  const std::vector<int>& hosts() const override { return hosts_; }
  std::vector<std::string> exchange(std::string_view text) override {
    return control_->exchange(text);
  }
  std::shared_ptr<Job> job() const override { return job_; }
  std::shared_ptr<Job> host_job() const override { return host_job_; }
  int host_rank() const override { return host_rank_; }
  void abort(const AbortRecord& record) noexcept override {
    job_->abort(record);
    control_->abort(record);
  }
  void await_rank_0(std::chrono::milliseconds limit) override { control_->await_rank_0(limit); }

 private:
  void find_hosts() {
    std::map<std::string, int> numbers;
    for (const std::string& key : control_->exchange(host_key())) {
      hosts_.push_back(numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second);
    }
    host_count_ = static_cast<int>(numbers.size());
    const int own = hosts_[static_cast<std::size_t>(options_.rank)];
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (hosts_[static_cast<std::size_t>(rank)] != own) continue;
      if (rank == options_.rank) host_rank_ = static_cast<int>(local_.size());
      local_.push_back(rank);
    }
  }

  /// The first rank of a host makes the segment and hands it to the others there.
  std::shared_ptr<SegmentJob> share_segment() {
    const Job::Options options{static_cast<int>(local_.size()), options_.timeout, false};
    const std::string name = fmt::format("shardbench-{}-{}", control_->token(), local_.front());
    std::shared_ptr<SegmentJob> job;
    if (host_rank_ == 0) {
      MemoryServer server(name);
      control_->exchange("");  // the others may call
      job = std::make_shared<SegmentJob>(options);
      server.serve(job->segment().memory(), static_cast<int>(local_.size()) - 1, options_.timeout);
    } else {
      control_->exchange("");
      job = std::make_shared<SegmentJob>(options, fetch_memory(name, options_.timeout));
    }
    return job;
  }

  Sign sign() {
    const std::lock_guard lock(mutex_);
    if (host_job_ == nullptr) return {};
    Sign sign;
    sign.position = host_job_->position_of(host_rank_);
    sign.position.rank = options_.rank;
    sign.beat = host_job_->segment().rank(host_rank_).heartbeat.load(std::memory_order_relaxed);
    return sign;
  }

  /// The segment of this host still says where a rank was that is gone.
  AbortRecord last_seen(int rank, const AbortRecord& told) {
    const std::lock_guard lock(mutex_);
    const auto at = std::find(local_.begin(), local_.end(), rank);
    if (host_job_ == nullptr || at == local_.end()) return told;
    return host_job_->position_of(static_cast<int>(at - local_.begin()));
  }

  void on_abort(const AbortRecord& record) {
    if (record.reason == AbortRecord::Reason::kLost && options_.on_lost) options_.on_lost(record);
    const std::lock_guard lock(mutex_);
    if (host_job_ == nullptr) {
      early_abort_ = record;
    } else {
      host_job_->abort(record);
    }
  }

  JoinOptions options_;
  std::vector<int> hosts_;
  std::vector<int> local_;  ///< ranks of this host
  int host_count_ = 1;
  int host_rank_ = 0;
  std::mutex mutex_;  ///< host_job_, which the control plane's thread uses
  std::shared_ptr<SegmentJob> host_job_;
  std::optional<AbortRecord> early_abort_;  ///< came before host_job_ was there
  std::shared_ptr<Job> job_;
  std::unique_ptr<Control> control_;
};

}  // namespace

std::unique_ptr<Group> join(const JoinOptions& options) {
  return std::make_unique<JoinedGroup>(options);
}

void require_equal(Group& group, const NamedValues& values) {
  std::vector<std::string> flat;
  for (const auto& [name, value] : values) {
    flat.push_back(name);
    flat.push_back(value);
  }
  std::vector<std::map<std::string, std::string>> all;
  for (const std::string& text : group.exchange(pack(flat))) {
    std::map<std::string, std::string>& one = all.emplace_back();
    const std::vector<std::string> parts = unpack(text);
    for (std::size_t i = 0; i + 1 < parts.size(); i += 2) one[parts[i]] = parts[i + 1];
  }
  std::map<std::string, std::string> names;
  for (const auto& one : all) names.insert(one.begin(), one.end());
  const auto value_in = [](const std::map<std::string, std::string>& one, const std::string& name) {
    const auto at = one.find(name);
    return at == one.end() ? std::string("not given") : "'" + at->second + "'";
  };
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (const auto& [name, unused] : names) {
      const std::string first = value_in(all[0], name);
      const std::string other = value_in(all[rank], name);
      if (first == other) continue;
      throw UserError::format(
          "ranks differ in {}: {} on rank 0, {} on rank {}; start all ranks "
          "with the same program and options",
          name, first, other, rank);
    }
  }
}

}  // namespace shardbench::comm
