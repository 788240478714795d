#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/comm/launch/outcome.h"

namespace shardbench::comm {

JobOutcome run_threads(std::shared_ptr<Job> job,
                       const std::function<std::string(int rank)>& rank_main) {
  const auto segment_job = as_segment_job(job);
  const int world_size = job->world_size();
  std::vector<std::string> results(static_cast<std::size_t>(world_size));
  std::mutex mutex;
  std::condition_variable ended;
  int running = world_size;

  std::vector<std::thread> threads;
  threads.reserve(results.size());
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      std::string result;
      run_rank(*segment_job, rank, rank_main, result);
      const std::lock_guard lock(mutex);
      results[static_cast<std::size_t>(rank)] = std::move(result);
      --running;
      ended.notify_one();
    });
  }
  StallWatch watch(*segment_job);
  {
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
      watch.check();
    }
  }
  for (std::thread& thread : threads) thread.join();
  return make_outcome(*segment_job, std::move(results), 0);
}

}  // namespace shardbench::comm
