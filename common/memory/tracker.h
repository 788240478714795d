#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "common/core/phase.h"
#include "common/memory/category.h"

namespace shardbench::memory {

using CategoryBytes = std::array<std::int64_t, kCategoryCount>;

/// A point of the timeline: live bytes when a phase or unit was entered.
struct TimelinePoint {
  Phase phase;
  std::string unit;
  CategoryBytes live;
};

/// Books live bytes by category, each category's own peak, and the split at the overall peak.
/// Torch-free and thread-safe; bytes are those asked for, without allocator rounding.
class Tracker {
 public:
  /// Memory came, went, or is for something else now. Bytes are not negative.
  void add(Category category, std::int64_t bytes);
  void remove(Category category, std::int64_t bytes);
  void retag(Category from, Category to, std::int64_t bytes);

  CategoryBytes live() const;  ///< now
  /// Each category's own peak since reset_peak().
  CategoryBytes peak_by_category() const;
  /// Largest sum of all categories since reset_peak(), its split, and where it happened.
  std::int64_t peak() const;
  CategoryBytes at_peak() const;
  Phase peak_phase() const;
  std::string peak_unit() const;
  void reset_peak();

  /// Where the run is now: recorded with a new peak and, when the timeline is on, as a point.
  void set_position(Phase phase, std::string_view unit);
  void record_timeline(bool on);
  std::vector<TimelinePoint> timeline() const;

 private:
  void note_peak_locked();
  mutable std::mutex mutex_;
  CategoryBytes live_{};
  CategoryBytes peak_by_category_{};
  CategoryBytes at_peak_{};
  std::int64_t live_total_ = 0;
  std::int64_t peak_ = 0;
  Phase phase_ = Phase::kInit;
  Phase peak_phase_ = Phase::kInit;
  std::string unit_;
  std::string peak_unit_;
  bool timeline_on_ = false;
  std::vector<TimelinePoint> timeline_;
};

/// The process's tracker: ATen's allocator is per process, so is this. (Ranks that run as threads
/// share it; their figures are then sums.)
Tracker& tracker();

/// Sum over all categories / over the persistent three.
std::int64_t total(const CategoryBytes& bytes);
std::int64_t persistent(const CategoryBytes& bytes);

}  // namespace shardbench::memory
