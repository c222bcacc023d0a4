#include "passes/offload.h"

namespace plimsoll {

PartTarget PartTarget::in_blocks(int64_t blocks) const {
  const int64_t disk = std::min(on_disk, blocks);
  const int64_t host = std::min(on_host, blocks - disk);
  if (disk == blocks) return Space::disk;
  return {disk, disk + host == blocks ? kEveryBlock : host};
}

std::string_view to_string(Part part) {
  switch (part) {
    case Part::states:
      return "states";
    case Part::gradients:
      return "gradients";
    case Part::weights:
      return "weights";
    case Part::activations:
      return "activations";
  }
  return "";
}

}  // namespace plimsoll
