#include "fleet/queue/store/machine_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "files/atomic.h"
#include "fleet/queue/store/row_values.h"

namespace plimsoll::queue {

namespace fs = std::filesystem;
using nlohmann::json;

void record_machine(const fs::path& folder, const Machine& machine) {
  json root = {{"host_bytes", machine.host_bytes},
               {"threads", machine.threads},
               {"host", machine.host},
               {"devices", json::array()}};
  for (const MachineCard& card : machine.cards)
    root["devices"].push_back({{"name", card.name},
                               {"bytes", card.bytes},
                               {"max_runs", card.max_runs},
                               {"problem", card.problem},
                               {"model", card.model}});
  (void)replace_file(folder / "worker.json.tmp", folder / "worker.json",
                     root.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::optional<Machine> recorded_machine(const fs::path& folder) {
  std::ifstream file(folder / "worker.json");
  if (!file) return std::nullopt;
  try {
    const json root = read_json_text(file);
    Machine machine{get_whole<int64_t>(root, "host_bytes"),
                    get_whole<int>(root, "threads"),
                    {},
                    root.value("host", "cpu:0")};
    for (const json& card : root.at("devices"))
      machine.cards.push_back({card.at("name").get<std::string>(), get_whole<int64_t>(card, "bytes"),
                               get_whole<int>(card, "max_runs"), card.value("problem", ""),
                               card.value("model", "")});
    bool good = machine.host_bytes >= 0 && machine.host_bytes <= kMostRowBytes && machine.threads >= 0;
    for (const MachineCard& card : machine.cards)
      good = good && card.bytes >= 0 && card.bytes <= kMostRowBytes;
    return good ? std::optional(machine) : std::nullopt;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

bool has_worker(const fs::path& folder) {
  const int file = open((folder / "worker.lock").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  const bool held = flock(file, LOCK_SH | LOCK_NB) != 0;
  close(file);
  return held;
}

}  // namespace plimsoll::queue
