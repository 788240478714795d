#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shardbench::memory {

/// What live memory is for; the first three are persistent.
enum class Category : std::uint8_t {
  kParam,
  kGrad,
  kOptimizer,
  kGatheredParam,
  kUnshardedGrad,
  kActivation,
  kCommBuffer,
  kTemp,
  kOther
};
inline constexpr int kCategoryCount = 9;

constexpr std::string_view name_of(Category category) {
  constexpr std::array<std::string_view, kCategoryCount> kNames = {
      "param",      "grad",        "optimizer", "gathered_param", "unsharded_grad",
      "activation", "comm_buffer", "temp",      "other"};
  return kNames[static_cast<std::size_t>(category)];
}

/// New memory of the calling thread is booked under `category` while the scope lives.
class CategoryScope {
 public:
  explicit CategoryScope(Category category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  Category previous_;
};

/// The category in force on the calling thread; kOther outside any scope.
Category current_category();

}  // namespace shardbench::memory
