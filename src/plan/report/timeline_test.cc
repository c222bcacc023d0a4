#include "plan/report/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/test_specs.h"

namespace plimsoll {
namespace {

PlanRequest timeline_request(int64_t layers, bool lora) {
  PlanRequest request;
  request.workload.experiment.model = test_spec({.layers = layers});
  request.workload.experiment.lora = lora;
  request.workload.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  request.workload.experiment.max_length = 64;
  request.workload.experiment.effective_batch = 8;
  request.workload.experiment.evaluates = true;
  request.target.device = reference_description();
  return request;
}

constexpr int64_t kAllMoments = 1'000'000;  // more moments than ops: nothing is left out

TEST(Timeline, every_program_peaks_at_the_lower_bound_of_its_layout) {
  for (const bool lora : {false, true}) {
    for (const RecomputePoint point : {RecomputePoint::none, RecomputePoint::block}) {
      PlanRequest request = timeline_request(3, lora);
      request.choices.recompute = point;
      const Plan plan = make_plan(request);
      for (const ProgramTimeline& program : make_timeline(plan, kAllMoments).programs) {
        int64_t most = 0;
        for (const Moment& moment : program.moments) most = std::max(most, moment.total);
        const ProgramLayout& layout = plan.layout.programs[program.program];
        EXPECT_EQ(most, plan.layout.persistent_bytes + layout.lower_bound_bytes) << program.name;
      }
    }
  }
}

TEST(Timeline, its_peak_has_the_components_of_the_report) {
  for (const bool lora : {false, true}) {
    const Plan plan = make_plan(timeline_request(3, lora));
    const Timeline timeline = make_timeline(plan, kAllMoments);
    const TimelinePeak peak = peak_of(timeline);
    const Moment& moment = timeline.programs[peak.program].moments[peak.moment];
    for (const Component& component : device_components(plan)) {
      if (component.name == "gaps of the layout") continue;
      const std::string name =
          component.name == "working tensors at the peak" ? "working tensors" : component.name;
      const auto at = std::find(timeline.components.begin(), timeline.components.end(), name);
      ASSERT_NE(at, timeline.components.end()) << name;
      EXPECT_EQ(moment.bytes[static_cast<size_t>(at - timeline.components.begin())], component.bytes) << name;
    }
  }
}

TEST(Timeline, fewer_moments_keep_the_peak) {
  const Plan plan = make_plan(timeline_request(8, true));
  const Timeline all = make_timeline(plan, kAllMoments);
  const Timeline few = make_timeline(plan, 40);
  size_t moments = 0;
  for (const ProgramTimeline& program : few.programs) moments += program.moments.size();
  EXPECT_LE(moments, 40U);
  const TimelinePeak a = peak_of(all);
  const TimelinePeak b = peak_of(few);
  EXPECT_EQ(all.programs[a.program].moments[a.moment].total, few.programs[b.program].moments[b.moment].total);
  EXPECT_EQ(all.programs[a.program].moments[a.moment].op, few.programs[b.program].moments[b.moment].op);
}

size_t characters(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(),
                                           [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

TEST(Timeline, the_terminal_gets_at_most_a_hundred_columns_with_phases_budget_and_peak) {
  PlanRequest request = timeline_request(3, true);
  request.choices.tie = 0;
  const int64_t open = make_plan(request).arena_bytes();
  request.target.budget.device_bytes = open + open / 8;
  const Plan plan = make_plan(request);
  const std::string text = timeline_text(plan);
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    EXPECT_LE(characters(text.substr(begin, end - begin)), 100U);
    begin = end + 1;
  }
  for (const char* word : {"forward", "backward", "update", "evaluation", "budget", "╌", "peak", "op "})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
}

TEST(TimelinePage, stands_alone_and_stays_small) {
  const Plan plan = make_plan(timeline_request(80, false));
  const std::string page = timeline_page(plan);
  EXPECT_LT(page.size(), 1'000'000U);
  for (const char* outside : {"http:", "https:", "src=", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_NE(page.find("name=\"viewport\""), std::string::npos);
  EXPECT_NE(page.find("prefers-color-scheme:dark"), std::string::npos);
}

TEST(TimelinePage, carries_the_moments_as_json) {
  const Plan plan = make_plan(timeline_request(3, true));
  const std::string page = timeline_page(plan);
  const std::string start = "const data = ";
  const size_t begin = page.find(start) + start.size();
  const auto data = nlohmann::json::parse(page.substr(begin, page.find(";\n", begin) - begin));
  const auto& peak =
      data["programs"][data["peak"][0].get<size_t>()]["moments"][data["peak"][1].get<size_t>()];
  int64_t total = 0;
  for (const auto& bytes : peak[2]) total += bytes.get<int64_t>();
  EXPECT_EQ(total, plan.layout.lower_bound_bytes());
}

}  // namespace
}  // namespace plimsoll
