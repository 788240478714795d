#include "bench/compare/output_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "shardbench_out_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string read(const fs::path& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(OutputFileTest, WritesWholeAndReplaces) {
  const fs::path path = folder_ / "r.json";
  const OutputFile file(path.string());
  EXPECT_EQ(entries(), 0u);  // the check leaves nothing
  file.write("one");
  EXPECT_EQ(read(path), "one");
  OutputFile(path.string()).write("two, longer");
  EXPECT_EQ(read(path), "two, longer");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OutputFileTest, CheckingKeepsTheOldFile) {
  const fs::path path = folder_ / "r.json";
  std::ofstream(path) << "old";
  const OutputFile file(path.string());
  EXPECT_EQ(read(path), "old");
}

TEST_F(OutputFileTest, RefusesFoldersAndMissingOnes) {
  EXPECT_THROW(OutputFile{folder_.string()}, UserError);
  EXPECT_THROW(OutputFile{(folder_ / "no" / "r.json").string()}, UserError);
  EXPECT_THROW(OutputFile{""}, UserError);
}

TEST_F(OutputFileTest, DevicesAreWrittenInPlace) { OutputFile("/dev/null").write("x"); }

TEST_F(OutputFileTest, AFolderThatWentAwayIsReported) {
  fs::create_directory(folder_ / "gone");
  const OutputFile file((folder_ / "gone" / "r.json").string());
  fs::remove(folder_ / "gone");
  EXPECT_THROW(file.write("x"), UserError);
}

TEST_F(OutputFileTest, DefaultPlaceFollowsTheCacheFolder) {
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  EXPECT_EQ(default_output_path(), (folder_ / "shardbench" / "last.json").string());
  EXPECT_TRUE(fs::is_directory(folder_ / "shardbench"));
  if (before == nullptr) {
    ::unsetenv("XDG_CACHE_HOME");
  } else {
    ::setenv("XDG_CACHE_HOME", saved.c_str(), 1);
  }
}

}  // namespace
}  // namespace shardbench::bench
