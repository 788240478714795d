#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <mutex>

namespace {

/// LibTorch seeds its generator from the clock: here every test starts from the same random
/// numbers, whichever ran before it.
class SeedRandomNumbers : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(20);
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new SeedRandomNumbers);  // gtest owns it
  return RUN_ALL_TESTS();
}
