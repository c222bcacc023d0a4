#include "ranks/node_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "base/units.h"

namespace plimsoll {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = 2 * kMiB;
constexpr int64_t kClaimedAtOnce = 64 * kMiB;  // a signal undoes what one call has claimed
constexpr int kCollapse = 25;                  // MADV_COLLAPSE, since Linux 6.1

std::string reason(int error) { return std::strerror(error); }

}  // namespace

NodePages::NodePages(RunRanks& ranks, int64_t bytes) : bytes_(round_up(bytes, kPage)) {
  const std::vector<int> node = ranks.on_node();
  const auto place = std::ranges::find(node, ranks.group().rank()) - node.begin();
  writes_ = place == 0;
  const int64_t each = round_up(ceil_div(bytes_, std::ssize(node)), kHugePage);
  own_.begin = std::min(bytes_, place * each);
  own_.bytes = std::min(each, bytes_ - own_.begin);
  try {
    ranks.together([this] {
      if (writes_) make();
    });
    const std::vector<std::string> places =
        gather_texts(ranks.group(), formatted("/proc/{}/fd/{}", getpid(), file_));
    ranks.together([&] {
      if (!writes_) open(places[static_cast<size_t>(node.front())]);
      claim();
    });
  } catch (...) {
    if (file_ >= 0) close(file_);
    throw;
  }
}

NodePages::~NodePages() { close(file_); }

void NodePages::make() {
  file_ = memfd_create("plimsoll-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  // Its size is settled: who has mapped a page finds it there.
  if (file_ >= 0 && ftruncate(file_, bytes_) == 0 &&
      fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    return;
  throw UsageError(formatted("memory.node_copy: the system makes no memory that processes share ({}); {}",
                             reason(errno), kInstead));
}

void NodePages::open(const std::string& place) {
  file_ = ::open(place.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0)
    throw UsageError(formatted(
        "memory.node_copy: {}, the memory that another process of this machine shares, cannot be opened ({}); {}",
        place, reason(errno), kInstead));
}

void NodePages::claim() const {
  for (int64_t done = 0; done < own_.bytes;) {
    const int64_t next = std::min(kClaimedAtOnce, own_.bytes - done);
    if (fallocate(file_, 0, own_.begin + done, next) == 0) {
      done += next;
    } else if (errno != EINTR) {
      throw DoesNotFitError(formatted(
          "the system gives no {} for the frozen weights of this machine's processes: {}; end what else takes "
          "memory of this machine (free -h), or {}",
          format_bytes(bytes_), reason(errno), kInstead));
    }
  }
}

void NodePages::map(std::byte* at) {
  void* const mapped =
      mmap(at, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, 0);
  if (mapped == MAP_FAILED)
    throw DoesNotFitError(
        formatted("the system maps no {} for the frozen weights of this machine's processes: {}",
                  format_bytes(bytes_), reason(errno)));
  at_ = at;
  // Huge pages, where the kernel has them for shared memory: products read weights faster through them.
  madvise(at_ + own_.begin, static_cast<size_t>(own_.bytes), kCollapse);
}

void NodePages::seal() { mprotect(at_, static_cast<size_t>(bytes_), PROT_READ); }

}  // namespace plimsoll
