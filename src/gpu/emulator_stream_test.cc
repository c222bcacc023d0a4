// A small offloaded program over three streams: a layer's weight comes in while another computes, its
// gradient goes out, through two buffers. With all waits every order gives the same; a missing wait is
// noticed in some order.
#include "gpu/emulator_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "gpu/card_fault.h"
#include "gpu/launch_limits.h"

namespace plimsoll::gpu::emulated {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 20;
constexpr size_t kBuffers = 2;

// The waits that a program may lack.
enum class Missing : uint8_t { nothing, fetch, reuse, store, join, host };

std::vector<Event> events_of(const std::string& name, size_t count) {
  std::vector<Event> events;
  for (size_t i = 0; i < count; ++i) events.emplace_back(name + " " + std::to_string(i));
  return events;
}

class Program {
 public:
  Program(Streams& card, size_t layers, Missing missing)
      : card_(card), missing_(missing), offloaded_(layers), gradients_(layers) {
    for (size_t i = 0; i < layers; ++i) offloaded_[i] = static_cast<double>(i + 1);
  }

  // All gradients of all steps, as the card found them after each.
  std::vector<double> run(int steps, bool captured) {
    Graph graph;
    if (captured) {
      card_.begin_capture(compute_);
      submit_step();
      graph = card_.end_capture();
    }
    for (int s = 1; s <= steps; ++s) {
      if (missing_ != Missing::host) card_.synchronise(compute_);
      host_step_ = s;
      if (captured) {
        card_.launch(compute_, graph);
      } else {
        submit_step();
      }
    }
    card_.synchronise(compute_);
    return results_;
  }

 private:
  void submit_step() {
    card_.copy(compute_, &step_, &host_step_, sizeof step_);
    card_.record(compute_, begin_);
    card_.wait(in_, begin_);
    card_.wait(out_, begin_);
    for (size_t i = 0; i < offloaded_.size(); ++i) submit_layer(i);
    card_.record(in_, all_fetched_);
    card_.record(out_, all_stored_);
    card_.wait(compute_, all_fetched_);
    if (missing_ != Missing::join) card_.wait(compute_, all_stored_);
    card_.submit(compute_, [this] { results_.insert(results_.end(), gradients_.begin(), gradients_.end()); });
  }

  void submit_layer(size_t i) {
    const size_t b = i % kBuffers;
    const bool again = i >= kBuffers;
    if (again && missing_ != Missing::reuse) card_.wait(in_, used_[i - kBuffers]);
    card_.copy(in_, &weight_[b], &offloaded_[i], sizeof(double));
    card_.record(in_, fetched_[i]);
    if (missing_ != Missing::fetch) card_.wait(compute_, fetched_[i]);
    if (again && missing_ != Missing::store) card_.wait(compute_, stored_[i - kBuffers]);
    card_.submit(compute_, [this, b] { gradient_[b] = weight_[b] * 10 + step_; });
    card_.record(compute_, used_[i]);
    card_.wait(out_, used_[i]);
    card_.copy(out_, &gradients_[i], &gradient_[b], sizeof(double));
    card_.record(out_, stored_[i]);
  }

  Streams& card_;
  Missing missing_;
  std::vector<double> offloaded_, gradients_, results_;
  std::vector<double> weight_ = std::vector<double>(kBuffers, -1e9), gradient_ = weight_;
  double step_ = -1, host_step_ = 0;
  StreamId compute_ = card_.open("compute"), in_ = card_.open("in"), out_ = card_.open("out");
  std::vector<Event> fetched_ = events_of("fetched", offloaded_.size()),
                     used_ = events_of("used", offloaded_.size()),
                     stored_ = events_of("stored", offloaded_.size());
  Event begin_{"begin"}, all_fetched_{"all fetched"}, all_stored_{"all stored"};
};

struct Order {
  When when = When::at_once;
  uint64_t seed = 1;
};

std::vector<double> result_of(Order order, Missing missing, bool captured, size_t layers = 6, int steps = 3) {
  Streams card(order.when, order.seed);
  return Program(card, layers, missing).run(steps, captured);
}

std::vector<double> expected(size_t layers = 6, int steps = 3) {
  std::vector<double> values;
  for (int s = 1; s <= steps; ++s)
    for (size_t i = 0; i < layers; ++i) values.push_back(static_cast<double>(i + 1) * 10 + s);
  return values;
}

// In how many of the shuffled orders the results are wrong.
int noticed(Missing missing, bool captured) {
  int count = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed)
    count += result_of({When::shuffled, seed}, missing, captured) != expected() ? 1 : 0;
  return count;
}

template <class Do>
std::string fault_of(Do&& act) {
  try {
    act();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "no fault";
}

TEST(EmulatedStreams, a_program_with_all_waits_gives_the_same_in_every_order) {
  for (const bool captured : {false, true}) {
    EXPECT_EQ(result_of({When::at_once}, Missing::nothing, captured), expected());
    EXPECT_EQ(result_of({When::late}, Missing::nothing, captured), expected());
    EXPECT_EQ(noticed(Missing::nothing, captured), 0);
  }
}

TEST(EmulatedStreams, every_missing_wait_is_noticed_in_some_order) {
  for (const Missing missing : {Missing::fetch, Missing::reuse, Missing::store, Missing::join, Missing::host})
    for (const bool captured : {false, true}) {
      if (captured && missing == Missing::join) continue;  // is refused, below
      SCOPED_TRACE(testing::Message()
                   << "missing " << static_cast<int>(missing) << ", captured " << captured);
      EXPECT_GT(noticed(missing, captured), 0);
      // Run at once, in the order it is written in, a program hides what it lacks. A graph has no such order.
      if (!captured) {
        EXPECT_EQ(result_of({When::at_once}, missing, captured), expected());
      }
    }
}

TEST(EmulatedStreams, thousands_of_items_run_in_every_order) {
  constexpr size_t kLayers = 500;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed)
    ASSERT_EQ(result_of({When::shuffled, seed}, Missing::nothing, seed % 2 == 0, kLayers, 2),
              expected(kLayers, 2));
  ASSERT_EQ(result_of({When::late}, Missing::nothing, false, kLayers, 2), expected(kLayers, 2));
}

TEST(EmulatedStreams, late_work_runs_when_the_host_waits_and_no_more_of_it_than_that_needs) {
  Streams card(When::late);
  const StreamId a = card.open("a"), b = card.open("b");
  std::string ran;
  Event middle("middle");
  card.submit(a, [&] { ran += '1'; });
  card.record(a, middle);
  card.submit(a, [&] { ran += '2'; });
  card.wait(b, middle);
  card.submit(b, [&] { ran += '3'; });
  EXPECT_EQ(ran, "");
  card.synchronise(middle);
  EXPECT_EQ(ran, "1");
  card.synchronise(b);
  EXPECT_EQ(ran, "13");
  card.synchronise();
  EXPECT_EQ(ran, "132");
}

TEST(EmulatedStreams, what_is_abandoned_never_runs_and_holds_nothing_up) {
  Streams card(When::late);
  const StreamId a = card.open("a"), b = card.open("b");
  std::string ran;
  Event event("event");
  card.submit(a, [&] { throw std::runtime_error("a kernel failed"); });
  card.submit(a, [&] { ran += '1'; });
  card.record(a, event);
  card.wait(b, event);
  EXPECT_THROW(card.synchronise(b), std::runtime_error);
  card.abandon();
  card.submit(b, [&] { ran += '2'; });
  card.synchronise();
  EXPECT_EQ(ran, "2");
}

TEST(EmulatedStreams, a_wait_is_for_what_the_event_was_when_the_wait_was_made) {
  Streams card(When::late);
  const StreamId a = card.open("a"), b = card.open("b");
  std::string ran;
  Event event("event");
  card.submit(a, [&] { ran += '1'; });
  card.record(a, event);
  card.wait(b, event);
  card.submit(a, [&] { ran += '2'; });
  card.record(a, event);
  card.synchronise(b);
  EXPECT_EQ(ran, "1");
  card.synchronise(event);
  EXPECT_EQ(ran, "12");
}

TEST(EmulatedStreams, an_event_that_nobody_recorded_is_a_fault) {
  Streams card(When::late);
  const StreamId in = card.open("in");
  const Event used("used 3");
  EXPECT_THAT(fault_of([&] { card.wait(in, used); }),
              AllOf(HasSubstr("stream in waits for event used 3"), HasSubstr("nobody recorded")));
  EXPECT_THAT(fault_of([&] { card.synchronise(used); }), HasSubstr("the host waits for event used 3"));
}

TEST(EmulatedStreams, a_capture_refuses_what_a_graph_cannot_hold) {
  EXPECT_THAT(fault_of([] { result_of({When::late}, Missing::join, true); }),
              HasSubstr("compute, which began it, does not wait for all of stream out"));
  Streams card(When::late);
  const StreamId a = card.open("a"), b = card.open("b");
  Event before("before"), inside("inside");
  card.record(a, before);
  EXPECT_THAT(fault_of([&] { card.end_capture(); }), HasSubstr("nobody began"));
  card.begin_capture(a);
  card.record(a, inside);
  EXPECT_THAT(fault_of([&] { card.submit(b, [] {}); }), HasSubstr("stream b is used during a capture"));
  EXPECT_THAT(fault_of([&] { card.wait(a, before); }), HasSubstr("recorded before that began"));
  EXPECT_THAT(fault_of([&] { card.synchronise(); }),
              HasSubstr("the host waits for all streams during a capture"));
  EXPECT_THAT(fault_of([&] { card.begin_capture(b); }), HasSubstr("another capture begins"));
  card.end_capture();
  EXPECT_THAT(fault_of([&] { card.wait(a, inside); }), HasSubstr("recorded in a capture"));
}

// A kernel that graphs launch with several sizes needs the largest, whichever came last.
TEST(SharedLimits, are_only_raised_and_only_above_what_every_kernel_gets) {
  SharedLimits limits;
  const int first = 0, second = 0;
  EXPECT_FALSE(limits.raises(&first, 48 * 1024));
  EXPECT_TRUE(limits.raises(&first, 50900));
  EXPECT_FALSE(limits.raises(&first, 50176));
  EXPECT_TRUE(limits.raises(&second, 50176));
  EXPECT_TRUE(limits.raises(&first, 65536));
}

TEST(Launches, that_no_card_takes_are_refused_with_what_is_too_much) {
  EXPECT_EQ(launch_fault({{1U << 20U, 65535, 1}, {1024, 1, 1}, 101376}, 101376),
            "a kernel was launched with more blocks than a grid may have: 1048576 x 65535 x 1");
  EXPECT_EQ(launch_fault({{1U << 30U, 1, 1}, {1024, 1, 1}, 101376}, 101376), "");
  EXPECT_THAT(launch_fault({{1, 65536, 1}, {1, 1, 1}}, 0), HasSubstr("1 x 65536 x 1"));
  EXPECT_THAT(launch_fault({{1, 1, 1}, {32, 64, 1}}, 0), HasSubstr("blocks of 2048 threads"));
  EXPECT_THAT(launch_fault({{1, 1, 1}, {32, 1, 1}, 101377}, 101376),
              HasSubstr("101377 bytes of shared memory"));
  EXPECT_THROW(require_launchable({{1, 1, 65536}, {1, 1, 1}}, 0), LaunchRefused);
}

TEST(FailedLaunches, are_faults_of_the_card_where_the_error_lasts) {
  for (const int error : {214, 700, 702, 710, 714, 719, 999})
    EXPECT_THROW(throw_failed_launch(error, "x"), CardFault) << error;
  for (const int error : {1, 2, 9, 98, 209, 701, 713, 720})
    EXPECT_THROW(throw_failed_launch(error, "x"), InternalError) << error;
}

TEST(CompileNote, is_said_where_the_driver_has_to_compile) {
  for (const int ready : {75, 120, 121}) EXPECT_EQ(compile_note("75,120", ready), "") << ready;
  EXPECT_EQ(compile_note("75,80,90,120", 89), "");
  for (const int compiled : {70, 80, 90, 100})
    EXPECT_THAT(compile_note("75,120", compiled), HasSubstr("the driver compiles it")) << compiled;
  EXPECT_THAT(compile_note("90", 86), HasSubstr("no code for compute capability 8.6"));
}

}  // namespace
}  // namespace plimsoll::gpu::emulated
