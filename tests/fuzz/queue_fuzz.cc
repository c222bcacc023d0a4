// A target for what the queue is given of others, by the first byte: a YAML (y) or JSON (j) file of another
// program under the change in its first line, a workload (w), a command's change after it ran out of memory
// (o).
#include <algorithm>

#include "fleet/queue/packing/choose_plans.h"
#include "fleet/queue/packing/simulation.h"
#include "fleet/queue/store/command.h"
#include "fleet/queue/store/config_copy.h"
#include "fuzz/target.h"

using namespace plimsoll;

namespace {

void change_config(std::string_view text, const std::string& name) {
  const auto [line, rest] = parted(text, '\n');
  std::vector<std::string> told;
  const queue::ConfigChange change = queue::read_config_change(name + ":" + std::string(line));
  const std::string file(rest);
  const std::string once = queue::changed_config(file, name, {change}, told);
  check_internal(told.size() == 1, "a change was not told");
  std::string twice;
  check_internal(accepted([&] { twice = queue::changed_config(once, name, {change}, told); }),
                 "the copy is refused:\n" + once);
  check_internal(twice == once, "changed again it is another:\n" + once + "\nand\n" + twice);
}

// Memory that may be given out is packed within it.
void read_workload(std::string_view text) {
  const queue::Workload workload = queue::read_workload(text, "workload.json");
  const queue::Machine machine = less_headroom(workload);
  std::vector<queue::Waiting> waiting;
  for (const queue::Job& job : workload.jobs) {
    if (waiting.size() >= 20) break;
    std::vector<queue::SmallerPlan> plans = job.smaller;
    if (plans.empty())
      plans.push_back(
          {job.need.host_bytes / 2, 2 * job.predicted_seconds, 0, job.need.device_bytes / 2, job.need.card});
    waiting.push_back({static_cast<int64_t>(waiting.size()), job.priority, job.predicted_seconds, job.arrives,
                       std::nullopt, job.need, plans});
  }
  const queue::ChosenPlans chosen = choose_plans(machine, waiting, {}, 0);
  check_internal(chosen.waiting.size() == waiting.size() && chosen.seconds <= chosen.seconds_before,
                 "chosen plans end later");
  std::vector<queue::Running> running;
  for (const queue::Placement& one : pack(machine, chosen.waiting, {}, 0).starts)
    running.push_back({one.id, 0, 1, one.need, one.cards});
  const queue::Free free = free_of(machine, running);
  check_internal(free.threads >= 0 && free.host_bytes >= 0, "the host was given out twice");
  for (const int64_t bytes : free.card_bytes) check_internal(bytes >= 0, "a device was given out twice");
}

void change_command(std::string_view text) {
  const auto [change, argument] = parted(text, '\n');
  queue::Command command{{"python", std::string(argument)}, {"batch=8"}};
  const size_t words = command.words.size();
  const queue::Command changed = queue::changed_command(command, std::string(change));
  check_internal(changed.words.size() >= words, "a command lost words");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = text_of(data, size);
  if (text.empty()) return 0;
  const std::string_view rest = text.substr(1);
  accepted([&] {
    if (text.front() == 'y') change_config(rest, "fuzz.yaml");
    if (text.front() == 'j') change_config(rest, "fuzz.json");
    if (text.front() == 'w') read_workload(rest);
    if (text.front() == 'o') change_command(rest);
  });
  return 0;
}
