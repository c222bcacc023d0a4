#include "fleet/doctor/snapshot.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "fleet/doctor/pickle.h"

namespace plimsoll::doctor {
namespace {

constexpr size_t kMostSites = 10;
constexpr size_t kMostFrames = 200;
constexpr size_t kMostPath = 1024, kMostName = 256;  // bytes of a frame's file and function that are read
constexpr int64_t kMostDevices = 256;
constexpr int64_t kMostSize = int64_t{1} << 60;  // of a block or a sum of them: no sum of two overflows
constexpr int64_t kMostVisits = 20'000'000;  // of segments, blocks and entries: lists may repeat one value

using Index = Pickle::Index;

// A size that a damaged file cannot turn into nonsense.
int64_t size_of(const Pickle& pickle, Index value) {
  return std::clamp<int64_t>(pickle.integer(value), 0, kMostSize);
}

int64_t sum(int64_t a, int64_t b) { return std::min(a + b, kMostSize); }

class Visits {
 public:
  explicit Visits(const std::string& name) : name_(name) {}
  void count() {
    if (++visits_ > kMostVisits)
      throw UsageError(formatted("{}: more than {} blocks and entries", printable(name_), kMostVisits));
  }

 private:
  std::string name_;
  int64_t visits_ = 0;
};

std::string base_name(std::string_view path) {
  const size_t slash = path.find_last_of("/\\");
  return std::string(slash == path.npos ? path : path.substr(slash + 1));
}

// The program's own line: the innermost one of Python that is not PyTorch's, else of Python, else any.
std::string place_of(const Pickle& pickle, Index frames) {
  std::string python;
  std::string any;
  size_t seen = 0;
  for (const Index frame : pickle.items(frames)) {
    if (++seen > kMostFrames) break;
    std::string_view file = pickle.text(pickle.at(frame, "filename"));
    if (file.empty()) continue;
    file.remove_prefix(file.size() - std::min(file.size(), kMostPath));
    const std::string place = formatted("{}:{}:{}", base_name(file), pickle.integer(pickle.at(frame, "line")),
                                        pickle.text(pickle.at(frame, "name")).substr(0, kMostName));
    if (file.ends_with(".py") && file.find("/torch/") == file.npos) return place;
    if (python.empty() && file.ends_with(".py")) python = place;
    if (any.empty() && file != "??") any = place;
  }
  return python.empty() ? any : python;
}

// Old files keep frames and the requested size in a block's history.
Index frames_of(const Pickle& pickle, Index block) {
  const Index frames = pickle.at(block, "frames");
  if (frames != 0) return frames;
  const std::span<const Index> history = pickle.items(pickle.at(block, "history"));
  return history.empty() ? 0 : pickle.at(history.front(), "frames");
}
int64_t requested_of(const Pickle& pickle, Index block) {
  const Index requested = pickle.at(block, "requested_size");
  if (requested != 0) return size_of(pickle, requested);
  const std::span<const Index> history = pickle.items(pickle.at(block, "history"));
  const Index real = history.empty() ? 0 : pickle.at(history.front(), "real_size");
  return size_of(pickle, real != 0 ? real : pickle.at(block, "size"));
}

bool in_use(std::string_view state) { return state.starts_with("active"); }

// Sums by place; frames lists are shared, so each is read once.
class Sites {
 public:
  explicit Sites(const Pickle& pickle) : pickle_(pickle) {}
  void add(Index frames, int64_t bytes) {
    auto& [total, count] = by_frames_[frames];
    total = sum(total, bytes);
    ++count;
  }
  [[nodiscard]] std::vector<AllocationSite> largest() const {
    std::map<std::string, AllocationSite> by_place;
    for (const auto& [frames, found] : by_frames_) {
      AllocationSite& site = by_place[place_of(pickle_, frames)];
      site.bytes = sum(site.bytes, found.first);
      site.count += found.second;
    }
    std::vector<AllocationSite> sites;
    for (auto& [place, site] : by_place) sites.push_back({place, site.bytes, site.count});
    std::stable_sort(sites.begin(), sites.end(),
                     [](const AllocationSite& a, const AllocationSite& b) { return a.bytes > b.bytes; });
    sites.resize(std::min(sites.size(), kMostSites));
    return sites;
  }

 private:
  const Pickle& pickle_;
  std::map<Index, std::pair<int64_t, int64_t>> by_frames_;
};

struct Live {
  int64_t bytes = 0;
  Index frames = 0;
};

class DeviceReader {
 public:
  DeviceReader(const Pickle& pickle, Visits& visits, int64_t device) : pickle_(pickle), visits_(visits) {
    result_.device = device;
  }

  void add_segment(Index segment) {
    visits_.count();
    ++result_.segments;
    result_.reserved = sum(result_.reserved, size_of(pickle_, pickle_.at(segment, "total_size")));
    int64_t address = pickle_.integer(pickle_.at(segment, "address"));
    for (const Index block : pickle_.items(pickle_.at(segment, "blocks"))) {
      visits_.count();
      ++result_.blocks;
      const int64_t size = size_of(pickle_, pickle_.at(block, "size"));
      const Index own_address = pickle_.at(block, "address");
      if (own_address != 0) address = pickle_.integer(own_address);
      if (in_use(pickle_.text(pickle_.at(block, "state")))) {
        result_.allocated = sum(result_.allocated, size);
        result_.requested = sum(result_.requested, std::min(requested_of(pickle_, block), size));
        live_[address] = {size, frames_of(pickle_, block)};
      } else {
        result_.idle = sum(result_.idle, size);
        result_.largest_idle = std::max(result_.largest_idle, size);
      }
      address = static_cast<int64_t>(static_cast<uint64_t>(address) + static_cast<uint64_t>(size));
    }
  }

  // Back in time from the snapshot: what was freed was there before, what was allocated was not.
  void walk_trace(std::span<const Index> entries) {
    result_.trace_entries = static_cast<int64_t>(entries.size());
    int64_t allocated = result_.allocated;
    result_.peak = allocated;
    size_t peak_at = entries.size();
    for (size_t i = entries.size(); i-- > 0;) {
      visits_.count();
      const std::string_view action = pickle_.text(pickle_.at(entries[i], "action"));
      const int64_t size = size_of(pickle_, pickle_.at(entries[i], "size"));
      if (action == "alloc") allocated = std::max<int64_t>(allocated - size, 0);
      if (action == "free_completed") allocated = sum(allocated, size);
      if (action == "oom" && !result_.saw_out_of_memory) {
        result_.saw_out_of_memory = true;
        result_.tried = size;
        result_.free_then = size_of(pickle_, pickle_.at(entries[i], "device_free"));
      }
      if (allocated > result_.peak) {
        result_.peak = allocated;
        peak_at = i;
      }
    }
    if (peak_at == entries.size()) return;
    for (size_t i = entries.size(); i-- > peak_at;) {
      const std::string_view action = pickle_.text(pickle_.at(entries[i], "action"));
      const int64_t address = pickle_.integer(pickle_.at(entries[i], "addr"));
      if (action == "alloc") at_peak_erase(address);
      if (action == "free_completed")
        peak_live()[address] = {size_of(pickle_, pickle_.at(entries[i], "size")),
                                frames_of(pickle_, entries[i])};
    }
  }

  DeviceSnapshot finish() {
    result_.at_end = largest(live_);
    result_.at_peak = has_peak_ ? largest(peak_) : result_.at_end;
    return result_;
  }

 private:
  using LiveMap = std::unordered_map<int64_t, Live>;

  LiveMap& peak_live() {
    if (!has_peak_) peak_ = live_;
    has_peak_ = true;
    return peak_;
  }
  void at_peak_erase(int64_t address) { peak_live().erase(address); }
  [[nodiscard]] std::vector<AllocationSite> largest(const LiveMap& live) const {
    Sites sites(pickle_);
    for (const auto& [address, block] : live) sites.add(block.frames, block.bytes);
    return sites.largest();
  }

  const Pickle& pickle_;
  Visits& visits_;
  DeviceSnapshot result_;
  LiveMap live_, peak_;
  bool has_peak_ = false;
};

std::string settings_text(const Pickle& pickle, Index settings) {
  std::string text;
  const std::span<const Index> items = pickle.items(settings);
  for (size_t i = 0; i + 1 < items.size() && i < 64; i += 2) {
    const std::string_view key = pickle.text(items[i]);
    if (key.empty() || key.size() > 64) continue;
    const std::string_view value = pickle.text(items[i + 1]).substr(0, 200);
    if (pickle.kind(items[i + 1]) == Pickle::Kind::text && value.empty()) continue;
    text += formatted("{}{}={}", text.empty() ? "" : ", ", key,
                      value.empty() ? std::to_string(pickle.integer(items[i + 1])) : std::string(value));
  }
  return text;
}

}  // namespace

bool looks_like_pickle(std::string_view start) {
  return start.size() >= 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5;
}

Snapshot read_snapshot(std::string_view bytes, const std::string& name) {
  const Pickle pickle(bytes, name);
  const Index root = pickle.root();
  // The oldest files are the list of segments alone.
  const bool is_list = pickle.kind(root) == Pickle::Kind::list;
  const Index segments = is_list ? root : pickle.at(root, "segments");
  if (pickle.kind(segments) != Pickle::Kind::list)
    throw UsageError(printable(name) +
                     ": a pickle, but no memory snapshot of PyTorch: it has no list 'segments'");
  Visits visits(name);
  std::map<int64_t, DeviceReader> devices;
  const auto device = [&](int64_t number) -> DeviceReader& {
    number = std::clamp<int64_t>(number, 0, kMostDevices - 1);
    return devices.try_emplace(number, pickle, visits, number).first->second;
  };
  for (const Index segment : pickle.items(segments))
    device(pickle.integer(pickle.at(segment, "device"))).add_segment(segment);
  int64_t number = 0;
  if (!is_list)
    for (const Index trace : pickle.items(pickle.at(root, "device_traces"))) {
      const std::span<const Index> entries = pickle.items(trace);
      if (!entries.empty() && number < kMostDevices) device(number).walk_trace(entries);
      ++number;
    }
  Snapshot snapshot;
  if (!is_list) snapshot.settings = settings_text(pickle, pickle.at(root, "allocator_settings"));
  for (auto& [at, reader] : devices) snapshot.devices.push_back(reader.finish());
  for (DeviceSnapshot& found : snapshot.devices) found.peak = std::max(found.peak, found.allocated);
  return snapshot;
}

}  // namespace plimsoll::doctor
