// Offsets by the bottom-up skyline: the constructive half of MiniMalloc (Moffitt, ASPLOS 2023) without its
// search.
//
// Imagine ops from left to right and addresses upwards. Every buffer is a box as wide as its lifetime; the
// skyline is the top of what has been put down over each op. Always the box that can be put lowest goes down
// next, so holes under a box come about only when nothing else fits lower. Among boxes that could go equally
// low a rank decides. On training programs the result is nearly always the lower bound itself, but no single
// rank is safe: one of them loses 8 % on a published program that another places within 0.8 %. Hence five,
// tried until the bound is reached; then orders in which what stuck out goes first (first_fit.h), and a few
// cycles of what repeats with the rest around them (period.h).
//
// A box can go no lower than the lowest valley of the skyline, and down there only if it is no wider. So the
// best box inside that valley goes next, and a valley into which none fits is filled up to its lower side.
// Every step puts down a box or removes a side, hence at most 3n steps, each a search of at most O(sqrt(n))
// among the waiting boxes. (A queue of boxes by last known height, the obvious way, takes n^2 steps on deeply
// nested lifetimes, which is what forward and backward passes make.) The result depends on the problem only.
#pragma once

#include <array>
#include <string_view>

#include "layout/problem.h"

namespace plimsoll::layout {

// The rule by which a buffer goes first among those that could be placed equally low; the larger the earlier.
// The profile of a buffer is the largest number of bytes alive together at any op of its lifetime.
enum class TieBreak : uint8_t { profile_area, area, profile_lifetime, lifetime, bytes };

// In the order in which solve() tries them: the ones that are exact most often stand first.
inline constexpr std::array kTieBreaks = {TieBreak::profile_area, TieBreak::area, TieBreak::profile_lifetime,
                                          TieBreak::lifetime, TieBreak::bytes};

// "profile,bytes*lifetime", ...
std::string_view to_string(TieBreak tie_break);

// The placement one tie-break gives. Throws InternalError on a problem that makes no sense (check_problem).
Placement place(const Problem& problem, TieBreak tie_break);

// The smallest placement over all orders, the earlier one where two are equal; stops at the first that
// reaches the lower bound, or what is enough.
Placement solve(const Problem& problem);

}  // namespace plimsoll::layout
