#include "common/memory/tracker.h"

#include <gtest/gtest.h>

#include <thread>

namespace shardbench::memory {
namespace {

std::int64_t of(const CategoryBytes& bytes, Category category) {
  return bytes[static_cast<std::size_t>(category)];
}

TEST(CategoryScope, NestsAndRestores) {
  EXPECT_EQ(current_category(), Category::kOther);
  {
    const CategoryScope outer(Category::kGrad);
    EXPECT_EQ(current_category(), Category::kGrad);
    {
      const CategoryScope inner(Category::kTemp);
      EXPECT_EQ(current_category(), Category::kTemp);
    }
    EXPECT_EQ(current_category(), Category::kGrad);
  }
  EXPECT_EQ(current_category(), Category::kOther);
}

TEST(CategoryScope, IsOfItsThread) {
  const CategoryScope scope(Category::kParam);
  Category seen = Category::kParam;
  std::thread([&] { seen = current_category(); }).join();
  EXPECT_EQ(seen, Category::kOther);
}

TEST(Tracker, LivePeakAndSplitAtThePeak) {
  Tracker tracker;
  tracker.add(Category::kParam, 100);
  tracker.add(Category::kTemp, 50);
  tracker.remove(Category::kTemp, 50);
  tracker.add(Category::kActivation, 30);
  EXPECT_EQ(total(tracker.live()), 130);
  EXPECT_EQ(tracker.peak(), 150);
  EXPECT_EQ(of(tracker.at_peak(), Category::kParam), 100);
  EXPECT_EQ(of(tracker.at_peak(), Category::kTemp), 50);
  EXPECT_EQ(of(tracker.at_peak(), Category::kActivation), 0);
  EXPECT_EQ(total(tracker.at_peak()), tracker.peak());
  // Each category's own peak adds up to more than the overall one.
  EXPECT_EQ(of(tracker.peak_by_category(), Category::kTemp), 50);
  EXPECT_EQ(of(tracker.peak_by_category(), Category::kActivation), 30);
  EXPECT_EQ(total(tracker.peak_by_category()), 180);
}

TEST(Tracker, RetagMovesBytesAndNeverThePeak) {
  Tracker tracker;
  tracker.add(Category::kTemp, 40);
  tracker.retag(Category::kTemp, Category::kActivation, 40);
  EXPECT_EQ(of(tracker.live(), Category::kTemp), 0);
  EXPECT_EQ(of(tracker.live(), Category::kActivation), 40);
  EXPECT_EQ(of(tracker.peak_by_category(), Category::kActivation), 40);
  EXPECT_EQ(tracker.peak(), 40);
  // Still at the peak, so its split follows.
  EXPECT_EQ(of(tracker.at_peak(), Category::kActivation), 40);
  tracker.add(Category::kTemp, 10);
  tracker.remove(Category::kTemp, 10);
  tracker.retag(Category::kActivation, Category::kOther, 40);
  EXPECT_EQ(of(tracker.at_peak(), Category::kActivation), 40);  // the peak is over
  EXPECT_EQ(total(tracker.at_peak()), 50);
}

TEST(Tracker, ResetPeakStartsFromWhatIsLive) {
  Tracker tracker;
  tracker.add(Category::kParam, 10);
  tracker.add(Category::kTemp, 90);
  tracker.remove(Category::kTemp, 90);
  tracker.set_position(Phase::kOptimizer, "h.3");
  tracker.reset_peak();
  EXPECT_EQ(tracker.peak(), 10);
  EXPECT_EQ(tracker.peak_by_category(), tracker.live());
  EXPECT_EQ(tracker.at_peak(), tracker.live());
  EXPECT_EQ(tracker.peak_phase(), Phase::kOptimizer);
  EXPECT_EQ(tracker.peak_unit(), "h.3");
}

TEST(Tracker, PeakKnowsWhereItHappened) {
  Tracker tracker;
  tracker.set_position(Phase::kForward, "h.0");
  tracker.add(Category::kActivation, 10);
  tracker.set_position(Phase::kBackward, "h.1");
  tracker.add(Category::kTemp, 5);
  tracker.remove(Category::kTemp, 5);
  tracker.set_position(Phase::kOptimizer, "");
  tracker.add(Category::kTemp, 5);  // level with the peak, not above
  EXPECT_EQ(tracker.peak_phase(), Phase::kBackward);
  EXPECT_EQ(tracker.peak_unit(), "h.1");
}

TEST(Tracker, TimelineIsRecordedOnlyWhileOn) {
  Tracker tracker;
  tracker.set_position(Phase::kInit, "");
  tracker.record_timeline(true);
  tracker.add(Category::kParam, 7);
  tracker.set_position(Phase::kForward, "root");
  tracker.add(Category::kGatheredParam, 5);
  tracker.set_position(Phase::kForward, "h.0");
  tracker.record_timeline(false);
  tracker.set_position(Phase::kBackward, "h.0");
  const auto timeline = tracker.timeline();
  ASSERT_EQ(timeline.size(), 2u);
  EXPECT_EQ(timeline[0].phase, Phase::kForward);
  EXPECT_EQ(timeline[0].unit, "root");
  EXPECT_EQ(total(timeline[0].live), 7);
  EXPECT_EQ(timeline[1].unit, "h.0");
  EXPECT_EQ(of(timeline[1].live, Category::kGatheredParam), 5);
}

TEST(Tracker, ExactWithManyThreads) {
  Tracker tracker;
  constexpr int kThreads = 4;
  constexpr int kTimes = 5000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&tracker, t] {
      const auto category = static_cast<Category>(t);
      const auto next = static_cast<Category>(t + 1);
      for (int i = 0; i < kTimes; ++i) {
        tracker.set_position(Phase::kForward, "unit");
        tracker.add(category, 3);
        tracker.retag(category, next, 2);
        EXPECT_EQ(total(tracker.at_peak()) <= kThreads * (kTimes + 3), true);
        tracker.remove(next, 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Each round leaves 1 byte in the thread's own category.
  for (int t = 0; t < kThreads; ++t)
    EXPECT_EQ(of(tracker.live(), static_cast<Category>(t)), kTimes);
  EXPECT_EQ(total(tracker.live()), kThreads * kTimes);
  EXPECT_EQ(total(tracker.at_peak()), tracker.peak());
  EXPECT_GE(tracker.peak(), kThreads * kTimes);
}

TEST(CategoryBytes, PersistentIsParametersGradientsAndOptimizer) {
  CategoryBytes bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::int64_t{1} << i;
  EXPECT_EQ(persistent(bytes), 1 + 2 + 4);
  EXPECT_EQ(total(bytes), (1 << kCategoryCount) - 1);
}

}  // namespace
}  // namespace shardbench::memory
