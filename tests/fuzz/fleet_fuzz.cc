// A target for what the fleet reads of others and of earlier versions, by the first byte: answers of Slurm
// (s), frames of top (f), and of a queue's attempt exit.json (e), memory.json (m) and launch (l).
#include <nlohmann/json.hpp>

#include "fleet/queue/processes/attempt.h"
#include "fleet/queue/processes/memory_history.h"
#include "fleet/slurm/slurm.h"
#include "fleet/top/frame.h"
#include "fleet/top/metrics.h"
#include "fuzz/target.h"

using namespace plimsoll;

namespace {

const FuzzFolder& folder() {
  static const FuzzFolder kFolder;
  return kFolder;
}

void read_slurm(std::string_view text) {
  const slurm::Nodes nodes = slurm::read_nodes(text);
  check_internal(nodes.memory_bytes >= 0 && nodes.total_bytes >= nodes.memory_bytes && nodes.threads >= 0 &&
                     nodes.gpus >= 0,
                 "a node that cannot be");
  for (const auto& jobs : {slurm::read_queue(text), slurm::read_account(text), slurm::read_details(text)})
    for (const slurm::Job& job : jobs) {
      check_internal(!job.id.empty(), "a job without a number");
      (void)slurm::phase_of(job.state);
    }
}

void read_frame(std::string_view text) {
  const top::Frame frame = top::read_frame(text, "night.jsonl:1");
  (void)top::frame_text(frame);
  (void)top::metrics_text(frame);
  const std::string once =
      top::frame_json(frame).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const std::string twice = top::frame_json(top::read_frame(once, "again"))
                                .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  check_internal(once == twice, "a frame reads back as another:\n" + once + "\n" + twice);
}

void read_memory(std::string_view text) {
  folder().write("memory.json", text);
  if (const auto history = queue::kept_memory(folder().path())) (void)queue::growth_of(*history);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = text_of(data, size);
  if (text.empty()) return 0;
  const std::string_view rest = text.substr(1);
  accepted([&] {
    if (text.front() == 's') read_slurm(rest);
    if (text.front() == 'f') read_frame(rest);
    if (text.front() == 'm') read_memory(rest);
    if (text.front() == 'e') {
      folder().write("exit.json", rest);
      (void)queue::read_exit(folder().path());
    }
    if (text.front() == 'l') {
      folder().write("launch", rest);
      (void)queue::read_launch(folder().path());
    }
  });
  return 0;
}
