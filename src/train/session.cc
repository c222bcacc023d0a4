#include "train/session.h"

#include "base/system_memory.h"

namespace plimsoll {

Session open_session(const Plan& plan, const InferenceDevice& wish, const std::filesystem::path& disk_folder,
                     RunObserver& observer, RunRanks& ranks) {
  const int64_t resident_before = resident_bytes();
  std::unique_ptr<Device> device = open_device(wish.device, wish.cuda_card, wish.cpu,
                                               plan.request.target.device.card, plan.programs, observer);
  const CardUse card(*device, resident_before);
  RunMemory memory(*device, plan.layout, disk_folder, ranks);
  const Arenas arenas = memory.arenas();
  return {plan, std::move(device), card, std::move(memory),
          PersistentState(plan.layout, arenas, ranks.group().rank())};
}

}  // namespace plimsoll
