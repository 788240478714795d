#include "common/memory/tracker.h"

#include <algorithm>
#include <numeric>

namespace shardbench::memory {
namespace {

constexpr std::size_t index_of(Category category) { return static_cast<std::size_t>(category); }

}  // namespace

void Tracker::add(Category category, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::int64_t& live = live_[index_of(category)];
  live += bytes;
  live_total_ += bytes;
  std::int64_t& peak = peak_by_category_[index_of(category)];
  peak = std::max(peak, live);
  if (live_total_ > peak_) note_peak_locked();
}

void Tracker::remove(Category category, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  live_[index_of(category)] -= bytes;
  live_total_ -= bytes;
}

void Tracker::retag(Category from, Category to, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  live_[index_of(from)] -= bytes;
  std::int64_t& live = live_[index_of(to)];
  live += bytes;
  std::int64_t& peak = peak_by_category_[index_of(to)];
  peak = std::max(peak, live);
  // Still at the peak: the newer name says better what the memory is for.
  if (live_total_ == peak_) note_peak_locked();
}

CategoryBytes Tracker::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

CategoryBytes Tracker::peak_by_category() const {
  const std::lock_guard lock(mutex_);
  return peak_by_category_;
}

std::int64_t Tracker::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

CategoryBytes Tracker::at_peak() const {
  const std::lock_guard lock(mutex_);
  return at_peak_;
}

Phase Tracker::peak_phase() const {
  const std::lock_guard lock(mutex_);
  return peak_phase_;
}

std::string Tracker::peak_unit() const {
  const std::lock_guard lock(mutex_);
  return peak_unit_;
}

void Tracker::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_by_category_ = live_;
  note_peak_locked();
}

void Tracker::set_position(Phase phase, std::string_view unit) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  unit_.assign(unit);
  if (timeline_on_) timeline_.push_back({phase, unit_, live_});
}

void Tracker::record_timeline(bool on) {
  const std::lock_guard lock(mutex_);
  if (on && !timeline_on_) timeline_.clear();
  timeline_on_ = on;
}

std::vector<TimelinePoint> Tracker::timeline() const {
  const std::lock_guard lock(mutex_);
  return timeline_;
}

void Tracker::note_peak_locked() {
  peak_ = live_total_;
  at_peak_ = live_;
  peak_phase_ = phase_;
  peak_unit_ = unit_;
}

Tracker& tracker() {
  // Never destroyed: memory may be given back while the program ends.
  static Tracker* const instance = new Tracker;
  return *instance;
}

std::int64_t total(const CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t persistent(const CategoryBytes& bytes) {
  return bytes[index_of(Category::kParam)] + bytes[index_of(Category::kGrad)] +
         bytes[index_of(Category::kOptimizer)];
}

}  // namespace shardbench::memory
