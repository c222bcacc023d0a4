// Every case of the op harness on a card: against the reference, against the emulated card, twice, and in
// place.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/description.h"
#include "harness/op_harness.h"
#include "outcome.h"
#include "runtime/device.h"

namespace plimsoll::gpu_check {

struct OpChoice {
  std::vector<std::string> named;    // cases whose names have one of these; none: all
  std::vector<std::string> without;  // of those, the ones whose names have none of these
  int from = 0;                      // the number of the first line, as after one that ended the process
  std::string wrong_op;              // whose results get one bit turned: the check must notice
};

// One outcome for each case and element type, numbered in "at". An exception other than a refusal is told
// with "fatal", and ends: what a kernel did to a card stays until its process ends. False there.
bool check_ops(Device& device, const CardFacts& card, const OpChoice& choice, const Tell& tell);

// The graph's ops on a device with memory of its own: all its tensors and the guards around them go there
// before each op and come back behind it.
harness::OpRun run_on(Device& device, const CardFacts& card, const Graph& graph,
                      const std::vector<harness::Values>& values,
                      std::optional<harness::Sharing> sharing = std::nullopt);
// The largest distance from what is wanted, in what is allowed.
double farthest(const harness::Values& got, const harness::Values& want, harness::Tolerance tolerance);

// Throws UsageError where no case has one of the names, chosen or left out.
void require_names(const OpChoice& choice);
// The cases that check_ops would ask.
std::vector<std::string> names_of_cases(const OpChoice& choice);

// Returns true if an op's kernel gives the emulator's bits on a card: IEEE arithmetic in a fixed order. Sums
// inside tensor cores, products by a library and ex2.approx are the card's own.
bool has_fixed_bits(const Op& op, DType dtype, bool by_library);

}  // namespace plimsoll::gpu_check
