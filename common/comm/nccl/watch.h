#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace shardbench::comm {

/// A thread that calls `look` every `interval` until it returns false or the object dies.
class Watch {
 public:
  Watch(std::chrono::milliseconds interval, std::function<bool()> look)
      : thread_([this, interval, look = std::move(look)] { run(interval, look); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    stopped_.notify_one();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  void run(std::chrono::milliseconds interval, const std::function<bool()>& look) {
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, interval, [this] { return stop_; })) {
      lock.unlock();
      const bool go_on = look();
      lock.lock();
      if (!go_on) return;
    }
  }

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace shardbench::comm
