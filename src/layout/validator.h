// Judges a placement against its problem. Written apart from the solver on purpose: it shares no code with
// it, reads only the two structs, and is simple enough to be believed. It runs on every plan before the plan
// is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/problem.h"

namespace plimsoll::layout {

enum class Fault : uint8_t {
  bad_alignment,      // the problem's alignment is no power of two
  wrong_count,        // not one offset per buffer
  bad_size,           // a buffer of negative size
  bad_lifetime,       // a buffer that ends before it begins
  negative_offset,    // below the arena
  misaligned,         // an offset that is no multiple of the alignment
  out_of_arena,       // a buffer that ends above the stated top
  overlap,            // two buffers that are alive at the same op share a byte
  wrong_lower_bound,  // the stated lower bound is not the most bytes alive at one op
};

// "overlap", ...
std::string_view to_string(Fault fault);

struct Verdict {
  Fault fault{};
  std::string buffer;  // empty where the fault is the placement's as a whole
  std::string other;   // the second buffer of an overlap
  std::string text;    // the fault in words, with names, bytes and ops
};

// Empty when the placement is right. Faults of single buffers come first and all of them; overlaps are looked
// for when sizes, lifetimes and offsets are sane, and at least one is found, at most one for each buffer; the
// lower bound is counted again when all else is right. O(n log n).
std::vector<Verdict> validate(const Problem& problem, const Placement& placement);

// Throws InternalError with the first verdicts unless validate() has none.
void require_valid(const Problem& problem, const Placement& placement);

}  // namespace plimsoll::layout
