// GPUs that plans can be made for without owning one: the figures of their data sheets, what a process takes
// on them in addition to its arena, and rates to estimate times from.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "device/description.h"

namespace plimsoll {

struct Card {
  std::string_view name;   // "RTX 3060": without the maker's name and the size of its memory
  int gigabytes;           // as it is sold
  int64_t memory_mib;      // as the driver reports it
  int compute_capability;  // times 10
  int multiprocessors;
  double bandwidth;  // GB/s, of its memory
  double tflops_16;  // of dense products of 16-bit numbers that are summed up in f32
  double tflops_32;  // of f32
  double link;       // GB/s between it and the host, of what is sent
};
std::span<const Card> all_cards();

// Reads "RTX 3060", "NVIDIA GeForce RTX 3080 20GB", "h100-sxm". Where a card is sold with memory of several
// sizes, the first one of the table is meant unless a size is named; a size that is not sold means a card
// that was rebuilt with as much. Throws UsageError, beginning with `what`, that names the nearest cards.
Card find_card(std::string_view text, std::string_view what);
// The card that a driver reports: of one name that is sold with memory of several sizes, the nearest of them.
Card find_card_of(std::string_view name, int64_t memory_bytes, std::string_view what);
// "RTX 3080 20GB", as find_card reads it.
std::string full_name(const Card& card);

// Tensor cores and arithmetic of bf16 begin with Ampere.
inline bool has_bf16(const Card& card) { return card.compute_capability >= 80; }

// Measurements of one card: by a run on it, or by `make gpu-check` and `make gpu-bench`.
struct MeasuredCard {
  std::string name;                              // full_name()
  std::string uuid;                              // "GPU-..."
  int driver = 0;                                // version of CUDA that it knows, 13000 for 13.0
  std::string kernels;                           // whose code it held
  std::optional<int64_t> memory_bytes;           // that programs may have: the driver keeps the rest
  std::optional<int64_t> process_bytes;          // that a process has in addition to its arena
  std::optional<int64_t> host_bytes;             // of the host's memory, that CUDA takes of a process
  std::optional<int64_t> graph_node_bytes = {};  // of the card, that a node of a captured graph takes
  std::optional<double> launch_seconds = {};     // of the host, to give the card a call
  std::optional<DeviceRates> rates;
};

// The memory that a process has on the card in addition to its arena; with `driver` also what the driver
// keeps of the card's memory, which no process can have. Measured values where there are some.
std::vector<OutsidePart> outside_parts(const Card& card, bool driver, const MeasuredCard* measured = nullptr);
// The part of that which is code that a run loads when its programs are bound: the kernels of this program, a
// library's.
OutsidePart code_part();
// The host memory that CUDA takes, and with `library` cuBLASLt.
OutsidePart host_part(const MeasuredCard* measured = nullptr, bool library = true);

// The workspace that cuBLASLt is granted for a product: more on the cards whose fast kernels ask for it.
int64_t library_workspace_bytes(int compute_capability, int64_t memory_bytes);

// Kernels for GPUs on a card with memory of its own, at measured rates or those of its data sheet.
DeviceDescription describe_card(const Card& card, bool driver, const MeasuredCard* measured = nullptr);

}  // namespace plimsoll
