#include "common/data/text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <map>

#include "common/core/error.h"
#include "tests/data/temporary_folder.h"

namespace shardbench::data {
namespace {

std::string user_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

/// `count` bytes that differ from their neighbours.
std::string numbered(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text.push_back(static_cast<char>(32 + i * 7 % 90));
  return text;
}

std::string tokens_of(const TextSource& source, Split split, std::int64_t index, std::int64_t seq) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(seq));
  std::vector<std::int64_t> targets(static_cast<std::size_t>(seq));
  source.read(split, index, seq, tokens.data(), targets.data());
  std::string text;
  for (std::int64_t token : tokens) text.push_back(static_cast<char>(token));
  for (std::size_t t = 0; t + 1 < tokens.size(); ++t) EXPECT_EQ(targets[t], tokens[t + 1]);
  text.push_back(static_cast<char>(targets.back()));
  return text;  // seq + 1 bytes
}

TEST(Text, WindowsOfTheTrainingAndTheHeldOutPart) {
  const TemporaryFolder folder;
  for (const std::size_t size : {2u, 19u, 100u, 101u, 109u, 1000u}) {
    const std::string text = numbered(size);
    const TextSource source(folder.write("text", text));
    EXPECT_EQ(source.bytes(), static_cast<std::int64_t>(size));
    const std::size_t cut = size * 9 / 10;
    for (const std::int64_t seq : {1, 2, 7, 10}) {
      const auto step = static_cast<std::size_t>(seq);
      const std::int64_t training = source.windows(Split::kTraining, seq);
      const std::int64_t held_out = source.windows(Split::kHeldOut, seq);
      EXPECT_EQ(training, cut == 0 ? 0 : static_cast<std::int64_t>((cut - 1) / step));
      EXPECT_EQ(held_out, static_cast<std::int64_t>((size - cut - 1) / step));
      for (std::int64_t i = 0; i < training; ++i) {
        const std::size_t begin = static_cast<std::size_t>(i) * step;
        EXPECT_EQ(tokens_of(source, Split::kTraining, i, seq), text.substr(begin, step + 1));
        EXPECT_LE(begin + step + 1, cut);  // never a held-out byte
      }
      for (std::int64_t i = 0; i < held_out; ++i) {
        const std::size_t begin = cut + static_cast<std::size_t>(i) * step;
        EXPECT_EQ(tokens_of(source, Split::kHeldOut, i, seq), text.substr(begin, step + 1));
      }
      EXPECT_THROW(tokens_of(source, Split::kTraining, training, seq), InvariantError);
      EXPECT_THROW(tokens_of(source, Split::kHeldOut, -1, seq), InvariantError);
    }
  }
}

TEST(Text, FolderJoinsTextFilesByName) {
  const TemporaryFolder folder;
  const std::string text = numbered(300);
  folder.write("c.txt", text.substr(120));
  folder.write("a.txt", text.substr(0, 50));
  folder.write("aa.txt", "");
  folder.write("b.txt", text.substr(50, 70));
  folder.write("zz.txt", "");
  folder.write("ignored.md", "not text");
  std::filesystem::create_directory(folder.path() + "/d.txt");  // a folder, in spite of its name
  const TextSource source(folder.path());
  const TemporaryFolder other;
  const TextSource whole(other.write("whole", text));
  ASSERT_EQ(source.bytes(), 300);
  for (const std::int64_t seq : {1, 13, 60}) {  // windows across one and two borders
    for (const Split split : {Split::kTraining, Split::kHeldOut}) {
      ASSERT_EQ(source.windows(split, seq), whole.windows(split, seq));
      for (std::int64_t i = 0; i < source.windows(split, seq); ++i) {
        EXPECT_EQ(tokens_of(source, split, i, seq), tokens_of(whole, split, i, seq));
      }
    }
  }
  EXPECT_EQ(source.bigram_baseline(), whole.bigram_baseline());
}

TEST(Text, BytesAreUnsigned) {
  const TemporaryFolder folder;
  const TextSource source(folder.write("bytes", std::string(30, '\xFF')));
  EXPECT_EQ(source.vocab(), 256);
  std::int64_t token = 0;
  std::int64_t target = 0;
  source.read(Split::kTraining, 0, 1, &token, &target);
  EXPECT_EQ(token, 255);
  EXPECT_EQ(target, 255);
}

TEST(Text, BigramBaselineByHand) {
  const TemporaryFolder folder;
  // 18 training bytes "ababababababababab" (9 x ab, 8 x ba), held out "ac".
  const TextSource source(folder.write("text", "abababababababababac"));
  ASSERT_EQ(source.training_bytes(), 18);
  ASSERT_TRUE(source.bigram_baseline().has_value());
  EXPECT_NEAR(*source.bigram_baseline(), -std::log(1.0 / (9 + 256)), 1e-12);
  const TextSource again(folder.write("text2", "abababababababababab"));
  EXPECT_NEAR(*again.bigram_baseline(), -std::log(10.0 / (9 + 256)), 1e-12);
}

TEST(Text, BigramBaselineEqualsTheDirectSum) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 5000; ++i) text.push_back(static_cast<char>(97 + (i * i / 7 + i / 3) % 26));
  const TextSource source(folder.write("text", text));
  const auto cut = static_cast<std::size_t>(source.training_bytes());
  std::map<std::pair<char, char>, int> pairs;
  std::map<char, int> firsts;
  for (std::size_t i = 0; i + 1 < cut; ++i) {
    ++pairs[{text[i], text[i + 1]}];
    ++firsts[text[i]];
  }
  double nats = 0;
  for (std::size_t i = cut; i + 1 < text.size(); ++i) {
    nats -= std::log((pairs[{text[i], text[i + 1]}] + 1.0) / (firsts[text[i]] + 256.0));
  }
  EXPECT_NEAR(*source.bigram_baseline(), nats / static_cast<double>(text.size() - cut - 1), 1e-9);
}

TEST(Text, TooShortSaysHowMuchIsNeeded) {
  const TemporaryFolder folder;
  const std::string path = folder.write("short", numbered(143));
  EXPECT_EQ(user_error_of([&] { TextSource(path).require_windows(128, false); }),
            "--data: '" + path +
                "' is too short for --seq 128: 144 bytes are needed (nine tenths are trained on "
                "and must have seq + 1), 143 are there");
  EXPECT_EQ(user_error_of([&] { TextSource(path).require_windows(128, true); }),
            "--data: '" + path +
                "' is too short for --seq 128: 1,281 bytes are needed (the last tenth is held out "
                "and must have seq + 1), 143 are there");
  EXPECT_THROW(TextSource(path).require_windows(0, false), UserError);
  EXPECT_THROW(TextSource(folder.write("empty", "")).require_windows(1, false), UserError);
}

TEST(Text, NeededBytesAreExact) {
  const TemporaryFolder folder;
  for (const std::int64_t seq : {1, 2, 3, 8, 9, 10, 17, 128}) {
    for (const bool held_out : {false, true}) {
      const auto needed =
          static_cast<std::size_t>(held_out ? 10 * seq + 1 : ((seq + 1) * 10 + 8) / 9);
      const TextSource enough(folder.write("enough", std::string(needed, 'x')));
      EXPECT_NO_THROW(enough.require_windows(seq, held_out)) << seq;
      const TextSource short_by_one(folder.write("short", std::string(needed - 1, 'x')));
      EXPECT_THROW(short_by_one.require_windows(seq, held_out), UserError) << seq;
    }
  }
}

TEST(OpenSource, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  EXPECT_EQ(user_error_of([&] { open_source(folder.path() + "/none.txt", 1, 256); }),
            "--data: '" + folder.path() +
                "/none.txt' does not exist; give a text file, a folder with *.txt files, or "
                "synthetic");
  EXPECT_EQ(user_error_of([&] { open_source(folder.path(), 1, 256); }),
            "--data: folder '" + folder.path() +
                "' holds no *.txt file; give a text file or a folder that does");
  EXPECT_EQ(user_error_of([] { open_source("/dev/null", 1, 256); }),
            "--data: '/dev/null' is not a regular file; give a text file, a folder with *.txt "
            "files, or synthetic");
  const std::string text = folder.write("text", "a text with ~");
  EXPECT_EQ(user_error_of([&] { open_source(text, 1, 64); }),
            "--data: '" + text +
                "' has byte values up to 126, but the model takes 64 token values; give --vocab "
                "256");
  EXPECT_EQ(open_source(text, 1, 127)->vocab(), 127);
  EXPECT_EQ(open_source("synthetic", 1, 64)->vocab(), 64);
}

TEST(OpenSource, UnreadableFileAndFolder) {
  const TemporaryFolder folder;
  const std::string file = folder.write("secret.txt", "text");
  const std::string below = folder.path() + "/below";
  std::filesystem::create_directory(below);
  std::filesystem::permissions(file, std::filesystem::perms::none);
  std::filesystem::permissions(below, std::filesystem::perms::none);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const bool root = geteuid() == 0;  // may read everything: step down for a moment
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const std::string file_error = user_error_of([&] { open_source(file, 1, 256); });
  const std::string folder_error = user_error_of([&] { open_source(below, 1, 256); });
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(file_error, "--data: cannot read '" + file + "': Permission denied");
  EXPECT_EQ(folder_error, "--data: cannot read folder '" + below + "': Permission denied");
}

}  // namespace
}  // namespace shardbench::data
