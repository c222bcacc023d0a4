// Device memory over the ops of a step: what is alive at each op, by component, from the layout's lifetimes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/search/plan.h"

namespace plimsoll {

// A run of ops, shown at the op of it where most bytes are alive.
struct Moment {
  int32_t op = 0;
  int64_t total = 0;
  std::vector<int64_t> bytes;   // by component
  std::vector<size_t> largest;  // ids of the largest transient tensors alive, descending
};

struct ProgramTimeline {
  std::string name;
  size_t program = 0;  // index into Plan::programs
  int32_t ops = 0;
  int32_t backward = -1;  // first op of the backward pass; -1: there is none
  double share = 0;       // of the picture's width
  std::vector<Moment> moments;
};

struct Timeline {
  std::vector<std::string> components;  // from the bottom up: persistent ones first
  std::vector<ProgramTimeline> programs;
};

// At most `most` moments, so that a picture stays small however many ops there are; no maximum is lost.
Timeline make_timeline(const Plan& plan, int64_t most);

struct TimelinePeak {
  size_t program = 0, moment = 0;  // indices into the timeline
};
TimelinePeak peak_of(const Timeline& timeline);

// "op 512 of 1,024: model.layers.3.mlp, backward (swiglu_grad)".
std::string op_words(const Plan& plan, const ProgramTimeline& program, int32_t op);

// The bytes that a picture's height stands for: the budget where it is near, else the arena.
int64_t picture_top(const Plan& plan);

// For a terminal: in lines of at most `columns`, or 120.
std::string timeline_text(const Plan& plan, size_t columns = 97);

// A page that needs nothing but itself: the picture, what is alive where the reader points, and the report's
// tables.
struct PageOrigin {
  std::string name = {};     // of the model
  std::string command = {};  // that writes the page
  std::string date = {};     // "2026-11-21 14:03:12", and by which version
};
std::string timeline_page(const Plan& plan, const PageOrigin& origin = {});

}  // namespace plimsoll
