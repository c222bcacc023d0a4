// Cards that plans can be made for without owning one: what their data sheets say, what a process takes on
// them beside its arena, and rates to guess times by.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "device/description.h"

namespace plimsoll {

struct Card {
  std::string_view name;   // "RTX 3060": without the maker's name and the size of its memory
  int gigabytes;           // as it is sold
  int64_t memory_mib;      // as the driver tells
  int compute_capability;  // times 10
  int multiprocessors;
  double bandwidth;  // GB/s, of its memory
  double tflops_16;  // of dense products of 16-bit numbers that are summed up in f32
  double tflops_32;  // of f32
  double link;       // GB/s between it and the host, of what is sent
};
std::span<const Card> all_cards();

// Reads "RTX 3060", "NVIDIA GeForce RTX 3080 20GB", "h100-sxm". Of a card with memory of several sizes the
// first one of the table is meant unless a size is named; another size than those that are sold is a card
// that was rebuilt with as much. Throws UsageError, beginning with `what`, that names the nearest cards.
Card find_card(std::string_view text, std::string_view what);
// "RTX 3080 20GB", as find_card reads it.
std::string full_name(const Card& card);

// What a process has on the card beside its arena; with `driver` also what the driver keeps of the card's
// memory, which no process can have.
std::vector<OutsidePart> outside_parts(const Card& card, bool driver);

// Kernels for GPUs at the rates of the data sheet, on a card with memory of its own.
DeviceDescription describe_card(const Card& card, bool driver);

}  // namespace plimsoll
