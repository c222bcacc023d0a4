// Tests of where NCCL is looked for, of what is refused as one, and of what is asked of it: by one that moves bytes between
// processes or, as here, threads (tests/fake_nccl.cc).
#include "gpu/nccl.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "files/test_folder.h"

namespace plimsoll::gpu {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr const char* kFake = PLIMSOLL_FAKE_NCCL;

// The variables that a process finds in its environment.
ReadVariable variables(const std::map<std::string, std::string>& values) {
  return [values](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

// A stand-in for the library that is not there.
class Fake {
 public:
  explicit Fake(const std::string& words) { setenv("FAKE_NCCL", words.c_str(), 1); }
  ~Fake() { unsetenv("FAKE_NCCL"); }
  Fake(const Fake&) = delete;
  Fake& operator=(const Fake&) = delete;
};

OpenedNccl open_fake() { return open_nccl(variables({{"PLIMSOLL_NCCL", kFake}})); }

TEST(NcclPlaces, the_loader_then_folders_of_pythons_packages) {
  const TestFolder folder;
  const fs::path wheel = folder.path() / "lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2";
  fs::create_directories(wheel.parent_path());
  std::ofstream(wheel) << "no library";
  const auto places = nccl_places(variables({{"VIRTUAL_ENV", folder.path().string()}}));
  ASSERT_GE(places.size(), 2U);
  EXPECT_EQ(places[0], "libnccl.so.2");
  EXPECT_EQ(places[1], wheel);
  EXPECT_THAT(nccl_places(variables({{"PLIMSOLL_NCCL", "/a/libnccl.so"}})), ElementsAre("/a/libnccl.so"));
  EXPECT_THAT(nccl_places(variables({{"PLIMSOLL_NCCL", "none"}})), IsEmpty());
}

TEST(Nccl, older_than_2_18_is_refused_with_its_version) {
  {
    const Fake fake("version=21800");
    ASSERT_NE(open_fake().library, nullptr);
    EXPECT_EQ(open_fake().library->name(), "NCCL 2.18.0");
  }
  const Fake fake("version=21705");
  const OpenedNccl opened = open_fake();
  EXPECT_EQ(opened.library, nullptr);
  EXPECT_THAT(opened.reason, HasSubstr("is NCCL 2.17.5, and 2.18 or later is needed"));
}

TEST(Nccl, a_file_that_is_none_says_what_it_lacks) {
  EXPECT_THAT(open_nccl(variables({{"PLIMSOLL_NCCL", "/none/libnccl.so.2"}})).reason,
              HasSubstr("/none/libnccl.so.2"));
  EXPECT_THAT(open_nccl(variables({{"PLIMSOLL_NCCL", PLIMSOLL_FAKE_CUBLASLT}})).reason,
              HasSubstr("does not tell its version"));
  EXPECT_EQ(open_nccl(variables({{"PLIMSOLL_NCCL", "none"}})).reason, "PLIMSOLL_NCCL=none");
}

// A byte that rank `from` sends rank `to`.
std::byte sent(int from, int to, size_t at) {
  return static_cast<std::byte>(from * 31 + to * 7 + static_cast<int>(at % 101));
}

TEST(NcclComm, pieces_go_to_their_ranks_and_are_gathered_from_all) {
  const auto library = open_fake().library;
  for (const int ranks : {1, 2, 3}) {
    const std::string id = NcclComm::unique_id(*library);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        constexpr size_t kEach = 200'000;  // several times a mailbox
        const auto all = kEach * static_cast<size_t>(ranks);
        std::vector<std::byte> from(all), to(all);
        for (int peer = 0; peer < ranks; ++peer)
          for (size_t i = 0; i < kEach; ++i)
            from[static_cast<size_t>(peer) * kEach + i] = sent(rank, peer, i);
        NcclComm comm(library, id, rank, ranks, 60);
        comm.exchange(from.data(), to.data(), kEach, nullptr);
        comm.all_gather(from.data(), kEach, nullptr);
        comm.require_whole();
        for (int peer = 0; peer < ranks; ++peer)
          for (size_t i = 0; i < kEach; ++i) {
            ASSERT_EQ(to[static_cast<size_t>(peer) * kEach + i], sent(peer, rank, i)) << peer;
            ASSERT_EQ(from[static_cast<size_t>(peer) * kEach + i], sent(peer, peer, i)) << peer;
          }
      });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(NcclComm, says_what_failed_and_what_does_without_it) {
  const auto library = open_fake().library;
  std::byte bytes[8]{};
  {
    const Fake fake("fails=1");
    NcclComm comm(library, NcclComm::unique_id(*library), 0, 1, 60);
    EXPECT_THAT([&] { comm.exchange(bytes, bytes + 4, 4, nullptr); },
                ThrowsMessage<StoppedError>(
                    HasSubstr("NCCL 2.27.3: ncclGroupEnd fails: internal error (said by a stand-in)")));
  }
  const Fake fake("async=1");
  NcclComm comm(library, NcclComm::unique_id(*library), 0, 1, 60);
  EXPECT_THAT([&] { comm.exchange(bytes, bytes + 4, 4, nullptr); },
              ThrowsMessage<StoppedError>(HasSubstr("memory.exchange: staged")));
}

TEST(NcclComm, a_rank_that_does_not_come_is_waited_for_no_longer_than_that) {
  const auto library = open_fake().library;
  const std::string id = NcclComm::unique_id(*library);
  EXPECT_THAT([&] { NcclComm(library, id, 0, 2, 0.1); },
              ThrowsMessage<StoppedError>(HasSubstr("the other ranks do not answer within 0 s")));
  std::remove(("/dev/shm" + std::string(id.c_str())).c_str());
}

}  // namespace
}  // namespace plimsoll::gpu
