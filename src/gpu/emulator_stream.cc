#include "gpu/emulator_stream.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"

namespace plimsoll::gpu::emulated {

int64_t Graph::nodes() const {
  int64_t nodes = 0;
  for (const std::vector<Item>& branch : branches_)
    for (const Item& item : branch) nodes += item.work != nullptr ? 1 : 0;
  return nodes;
}

StreamId Streams::open(std::string name) {
  queues_.push_back({std::move(name), {}});
  return {queues_.size() - 1};
}

void Streams::submit(StreamId stream, std::function<void()> work) {
  if (work == nullptr) throw Fault(formatted("stream {} was given empty work", queues_[stream.number].name));
  if (capture_) {
    put_in_capture(branch_of(stream), {std::move(work), {}});
  } else {
    put(stream.number, {std::move(work), {}});
  }
}

void Streams::copy(StreamId stream, void* to, const void* from, size_t bytes) {
  submit(stream, [to, from, bytes] { std::memcpy(to, from, bytes); });
}

void Streams::record(StreamId stream, Event& event) {
  if (!capture_) {
    event.place_ = {{stream.number, queues_[stream.number].submitted}, 0, {}};
    return;
  }
  const size_t branch = branch_of(stream);
  event.place_ = {{branch, capture_->branches[branch].size()}, captures_, capture_->known[branch]};
}

void Streams::wait(StreamId stream, const Event& event) {
  if (capture_) {
    wait_in_capture(stream, event);
  } else {
    put(stream.number, {nullptr, place_of(event, "stream " + queues_[stream.number].name).position});
  }
}

void Streams::synchronise(StreamId stream) {
  refuse_in_capture("the host waits for a stream");
  reach({stream.number, queues_[stream.number].submitted});
}

void Streams::synchronise(const Event& event) {
  refuse_in_capture("the host waits for an event");
  reach(place_of(event, "the host").position);
}

void Streams::synchronise() {
  refuse_in_capture("the host waits for all streams");
  for (size_t queue = 0; queue < queues_.size(); ++queue) reach({queue, queues_[queue].submitted});
}

void Streams::abandon() noexcept {
  capture_.reset();
  for (Queue& queue : queues_) {
    queue.items.clear();
    queue.done = queue.submitted;
  }
}

void Streams::begin_capture(StreamId stream) {
  refuse_in_capture("another capture begins");
  ++captures_;
  capture_ = {{stream.number}, {{}}, {{0}}};
}

Graph Streams::end_capture() {
  if (!capture_) throw Fault("a capture ends that nobody began");
  Capture capture = std::move(*capture_);
  capture_.reset();
  // Branches that joined after the first one's last wait are not among what it knows.
  capture.known[0].resize(capture.branches.size());
  Graph graph;
  graph.branches_ = std::move(capture.branches);
  for (size_t branch = 0; branch < graph.branches_.size(); ++branch) {
    const std::string name = queues_[capture.streams[branch]].name;
    if (capture.known[0][branch] < graph.branches_[branch].size())
      throw Fault(
          formatted("a capture ends while stream {}, which began it, does not wait for all of stream {}: "
                    "record an event at that stream's end and wait for it",
                    queues_[capture.streams[0]].name, name));
    graph.queues_.push_back(branch == 0 ? 0 : open(name + " of a graph").number);
  }
  return graph;
}

void Streams::launch(StreamId stream, const Graph& graph) {
  refuse_in_capture("a graph is launched");
  std::vector<size_t> queues = graph.queues_;
  queues.at(0) = stream.number;
  const Position before = {stream.number, queues_[stream.number].submitted};
  for (size_t branch = 1; branch < queues.size(); ++branch) put(queues[branch], {nullptr, before});
  std::vector<uint64_t> begins;
  for (const size_t queue : queues) begins.push_back(queues_[queue].submitted);
  for (size_t branch = queues.size(); branch-- > 0;)
    for (const Item& item : graph.branches_[branch])
      queues_[queues[branch]].items.push_back(
          {item.work, {queues[item.after.queue], begins[item.after.queue] + item.after.count}});
  for (size_t branch = 0; branch < queues.size(); ++branch)
    queues_[queues[branch]].submitted += graph.branches_[branch].size();
  if (when_ == When::at_once) reach({stream.number, queues_[stream.number].submitted});
}

size_t Streams::branch_of(StreamId stream) {
  const auto found = std::find(capture_->streams.begin(), capture_->streams.end(), stream.number);
  if (found == capture_->streams.end())
    throw Fault(
        formatted("stream {} is used during a capture that it has not joined: let it wait for an event of "
                  "the capture",
                  queues_[stream.number].name));
  return static_cast<size_t>(found - capture_->streams.begin());
}

void Streams::put(size_t queue, Item item) {
  queues_[queue].items.push_back(std::move(item));
  ++queues_[queue].submitted;
  if (when_ == When::at_once) reach({queue, queues_[queue].submitted});
  // Some of what waits, so that work may also run before the host has submitted everything.
  if (when_ == When::shuffled && random() % 3 == 0) run_any();
}

void Streams::put_in_capture(size_t branch, Item item) {
  capture_->branches[branch].push_back(std::move(item));
  ++capture_->known[branch][branch];
}

void Streams::wait_in_capture(StreamId stream, const Event& event) {
  const Event::Place& place = place_of(event, "stream " + queues_[stream.number].name);
  auto& streams = capture_->streams;
  if (std::find(streams.begin(), streams.end(), stream.number) == streams.end()) {
    streams.push_back(stream.number);
    capture_->branches.emplace_back();
    capture_->known.emplace_back();
  }
  const size_t branch = branch_of(stream);
  std::vector<uint64_t>& known = capture_->known[branch];
  known.resize(streams.size());
  for (size_t i = 0; i < place.known.size(); ++i) known[i] = std::max(known[i], place.known[i]);
  put_in_capture(branch, {nullptr, place.position});
}

const Event::Place& Streams::place_of(const Event& event, const std::string& who) const {
  const std::string waits = formatted("{} waits for event {}", who, event.name_);
  if (!event.place_)
    throw Fault(waits +
                ", which nobody recorded: record it before the wait, on the stream that is waited for");
  if (event.place_->capture != (capture_ ? captures_ : 0))
    throw Fault(formatted("{}{}: record and wait on the same side of the capture", waits,
                          capture_ ? " during a capture, though it was recorded before that began"
                                   : ", though it was recorded in a capture, whose work has not run"));
  return *event.place_;
}

void Streams::refuse_in_capture(const char* what) const {
  if (capture_) throw Fault(std::string(what) + " during a capture: end the capture first");
}

bool Streams::ready(size_t queue) const {
  const std::deque<Item>& items = queues_[queue].items;
  if (items.empty()) return false;
  const Item& head = items.front();
  return head.work != nullptr || queues_[head.after.queue].done >= head.after.count;
}

void Streams::run_head(size_t queue) {
  const Item item = std::move(queues_[queue].items.front());
  queues_[queue].items.pop_front();
  if (item.work) item.work();
  ++queues_[queue].done;
}

// One item, mostly of the queue that ran last: orders in which one stream is far ahead are those that show
// most.
bool Streams::run_any() {
  constexpr uint64_t kRun = 8;
  if (favourite_ >= queues_.size() || !ready(favourite_) || random() % kRun == 0) {
    std::vector<size_t> can;
    for (size_t queue = 0; queue < queues_.size(); ++queue)
      if (ready(queue)) can.push_back(queue);
    if (can.empty()) return false;
    favourite_ = can[random() % can.size()];
  }
  run_head(favourite_);
  return true;
}

// A waiting item was submitted after the one that it waits for. So some head is always ready, and no queue
// comes twice among those that wait for each other in turn: the recursion is no deeper than there are queues.
void Streams::reach(Position goal) {
  while (queues_[goal.queue].done < goal.count) {
    if (when_ == When::shuffled) {
      check_internal(run_any(), "no stream can go on");
      continue;
    }
    if (!ready(goal.queue)) reach(queues_[goal.queue].items.front().after);
    run_head(goal.queue);
  }
}

uint64_t Streams::random() {
  random_state_ = random_state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  return random_state_ >> 33;
}

}  // namespace plimsoll::gpu::emulated
