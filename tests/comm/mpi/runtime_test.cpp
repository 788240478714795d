// Which MPI is loaded, what it must grant, how texts go round and messages are cut.
#include "common/comm/mpi/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/job.h"
#include "common/comm/mpi/load.h"
#include "common/comm/mpi/ranges.h"
#include "common/comm/mpi/tag.h"
#include "common/core/error.h"
#include "tests/comm/mpi/fake_mpi.h"

namespace shardbench::comm {
namespace {

using sharding::Segment;
using testing::FakeMpi;
using ::testing::HasSubstr;

MpiLaunch detect(std::map<std::string, std::string> variables, std::vector<std::string> built) {
  return detect_mpi(built, [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return {};
    return found->second;
  });
}

template <class Call>
std::string user_error_of(const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DetectMpi, ByTheLaunchersVariables) {
  const std::vector<std::string> both = {"openmpi", "mpich"};
  const MpiLaunch open = detect({{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "1"}}, both);
  EXPECT_EQ(open.implementation, "openmpi");
  EXPECT_EQ(open.ranks, 4);
  const MpiLaunch hydra = detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}, both);
  EXPECT_EQ(hydra.implementation, "mpich");
  EXPECT_EQ(hydra.ranks, 3);
  const MpiLaunch slurm = detect({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}}, both);
  EXPECT_EQ(slurm.implementation, "openmpi");
  EXPECT_EQ(slurm.ranks, 8);
}

TEST(DetectMpi, UsersChoiceWins) {
  const MpiLaunch launch =
      detect({{"SHARDBENCH_MPI", "mpich"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, {"openmpi", "mpich"});
  EXPECT_EQ(launch.implementation, "mpich");
  EXPECT_EQ(launch.ranks, 2);
  EXPECT_THAT(
      user_error_of([] {
        detect({{"SHARDBENCH_MPI", "mpic"}}, {});
      }),
      HasSubstr("SHARDBENCH_MPI 'mpic': choose from openmpi, mpich (did you mean 'mpich'?)"));
}

TEST(DetectMpi, OnlyOneBuiltNeedsNoVariable) {
  EXPECT_EQ(detect({{"SLURM_PROCID", "0"}}, {"mpich"}).implementation, "mpich");
  EXPECT_THAT(user_error_of([] {
                detect({}, {"openmpi", "mpich"});
              }),
              HasSubstr("set SHARDBENCH_MPI to openmpi or mpich"));
  EXPECT_THAT(user_error_of([] { detect({}, {}); }), HasSubstr("cannot tell which MPI"));
}

TEST(LoadMpi, OneThatWasNotBuiltIsNamed) {
  EXPECT_THAT(user_error_of([] { load_mpi("lam"); }), HasSubstr("lam"));
}

TEST(MpiRuntime, TooFewThreadGuarantees) {
  const FakeMpi mpi(1, {.thread_safe = false});
  EXPECT_THAT(user_error_of([&] { MpiRuntime(mpi.api(), 1); }),
              HasSubstr("fake grants this process less than MPI_THREAD_SERIALIZED"));
  EXPECT_EQ(mpi.finalized(), 1);
}

TEST(MpiRuntime, LibraryOfAnotherLauncher) {
  const FakeMpi mpi(2, {.seen_size = 1});
  EXPECT_THAT(user_error_of([&] { MpiRuntime(mpi.api(), 2); }),
              HasSubstr("the launcher started 2 processes, but fake sees one"));
}

TEST(MpiRuntime, FinalisesWhatItHasInitialised) {
  FakeMpi::enter_rank(0);
  {
    const FakeMpi mpi(1);
    { const MpiRuntime runtime(mpi.api(), 0); }
    EXPECT_EQ(mpi.finalized(), 1);
    {
      MpiRuntime runtime(mpi.api(), 0);
      EXPECT_EQ(runtime.library_version(), "Fake MPI 1.0");
      runtime.abandon();
    }
    EXPECT_EQ(mpi.finalized(), 1);
  }
  const FakeMpi mpi(1, {.joined = true});
  { const MpiRuntime runtime(mpi.api(), 0); }
  EXPECT_EQ(mpi.finalized(), 0);
}

TEST(MpiRuntime, TextsGoRound) {
  const FakeMpi mpi(3, {.synchronous = true});
  const auto job = Job::create({.world_size = 3});
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    FakeMpi::enter_rank(rank);
    MpiRuntime runtime(mpi.api(), 3);
    const std::vector<std::string> first =
        runtime.all_gather_text(std::string(static_cast<std::size_t>(rank), 'x'));
    const std::vector<std::string> second = runtime.all_gather_text(std::to_string(rank));
    return first[0] + "," + first[1] + "," + first[2] + ";" + second[0] + second[1] + second[2];
  });
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
  for (const std::string& result : outcome.results) EXPECT_EQ(result, ",x,xx;012");
}

TEST(MpiRuntime, MissingTextsAreNamed) {
  FakeMpi::enter_rank(0);
  const FakeMpi mpi(3);
  MpiRuntime runtime(mpi.api(), 3);
  try {
    runtime.all_gather_text("alone", std::chrono::milliseconds(5));
    ADD_FAILURE() << "texts that nobody sent";
  } catch (const JobAborted& error) {
    EXPECT_STREQ(error.what(), "rank 0 waited 5 ms for a text of rank 1, 2");
  }
}

/// Lengths of the ranges of each message.
std::vector<std::vector<std::uint64_t>> messages_of(const std::vector<Segment>& segments,
                                                    SegmentSide side, std::size_t element,
                                                    const MessageLimits& limits) {
  std::vector<std::vector<std::uint64_t>> messages;
  std::vector<ByteRange> scratch;
  for_each_message(segments, side, element, nullptr, limits, scratch, [&](auto ranges) {
    messages.emplace_back();
    for (const ByteRange& range : ranges) messages.back().push_back(range.bytes);
  });
  return messages;
}

// Nothing of this size is allocated: only the arithmetic is looked at.
TEST(Messages, MoreThanMpiCountsIsSplit) {
  constexpr std::int64_t kElements = std::int64_t{700} << 20;  // 2.73 GiB of fp32
  const std::vector<Segment> segments = {{0, 10, kElements}};
  const auto messages = messages_of(segments, SegmentSide::kFull, 4, {});
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  EXPECT_EQ(messages, (std::vector<std::vector<std::uint64_t>>{
                          {kGiB}, {kGiB}, {static_cast<std::uint64_t>(kElements) * 4 - 2 * kGiB}}));
}

TEST(Messages, LargeSegmentsGoAlone) {
  const std::vector<Segment> segments = {{0, 0, 2}, {9, 4, 0}, {2, 8, 3}, {5, 20, 10}, {15, 40, 1}};
  const MessageLimits limits{.largest = 16, .alone = 10};
  const std::vector<std::vector<std::uint64_t>> want = {{2, 3}, {10}, {1}};
  EXPECT_EQ(messages_of(segments, SegmentSide::kFull, 1, limits), want);
  EXPECT_EQ(messages_of(segments, SegmentSide::kShard, 1, limits), want);
  const std::vector<std::vector<std::uint64_t>> doubled = {{4, 6}, {16}, {4}, {2}};
  EXPECT_EQ(messages_of(segments, SegmentSide::kFull, 2, limits), doubled);
  EXPECT_TRUE(messages_of({{0, 0, 0}}, SegmentSide::kFull, 8, limits).empty());
}

TEST(Messages, SmallOnesStayBelowTheLimit) {
  const std::vector<Segment> segments(5, Segment{0, 0, 6});
  const MessageLimits limits{.largest = 16, .alone = 10};
  EXPECT_EQ(messages_of(segments, SegmentSide::kFull, 1, limits),
            (std::vector<std::vector<std::uint64_t>>{{6, 6}, {6, 6}, {6}}));
}

TEST(Tags, FitTheLeastThatMpiGrants) {
  for (const int max_tag : {32767, (1 << 24) - 1, 0x7fffffff}) {
    const TagLayout tags(max_tag);
    const int largest = tags.make(255, CollectiveKind::kBarrier, ~std::uint64_t{0}, true);
    EXPECT_GE(largest, 0);
    EXPECT_LE(largest, max_tag);
    EXPECT_EQ(TagLayout::kind_of(largest), CollectiveKind::kBarrier);
  }
}

TEST(Tags, TellCallsApart) {
  const TagLayout tags(32767);
  const auto gather = CollectiveKind::kAllGather;
  const auto reduce = CollectiveKind::kReduce;
  const int tag = tags.make(7, gather, 1, false);
  EXPECT_FALSE(tags.contradicts(tag, tag));
  EXPECT_FALSE(tags.contradicts(tag, tags.make(7, gather, 1, true)));
  EXPECT_TRUE(tags.contradicts(tag, tags.make(7, reduce, 1, false)));
  EXPECT_TRUE(tags.contradicts(tag, tags.make(7, gather, 2, false)));
  EXPECT_FALSE(tags.contradicts(tag, tags.make(8, reduce, 2, false)));
}

}  // namespace
}  // namespace shardbench::comm
