#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// The second of three pieces, and the last one, which is shorter.
std::string place_of_rank(const std::string& first, const std::string& elements) {
  return "tensor a %[2560] frozen whole[70,100]\n"
         "b %[70,100] = all_gather(a) {elements=" +
         elements + ", first=" + first + ", piece=2560, whole=7000} @a forward\n";
}

[[maybe_unused]] const bool kAllGatherCases = register_cases({
    {.name = "all_gather", .body = place_of_rank("2560", "2560")},
    {.name = "all_gather_of_the_last_rank", .body = place_of_rank("5120", "1880")},
});

}  // namespace
}  // namespace plimsoll::harness
