// An NVIDIA GPU, by CUDA's runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/description.h"
#include "gpu/card.h"

namespace plimsoll::gpu {

// Facts about a GPU, as its driver reports them.
struct CudaFacts {
  int number = 0;  // CUDA's
  std::string name;
  std::string uuid;  // "GPU-1a2b3c4d-..."
  CardFacts card;
  int64_t memory_bytes = 0;  // that programs may have
  int driver = 0;            // version of CUDA, 13000 for 13.0
  std::string library = {};  // that computes products on it; empty: none, or not asked
  bool emulated = false;     // tests: the emulated card computes in its place
};

// Returns whether this program has what it takes to train on a GPU; without it the two below refuse.
bool built_with_cuda();

// `which`: empty for the first card that it shows to this process, CUDA's number, or the beginning of a UUID.
// Throws UsageError that says what is missing: this build's CUDA, a driver, a newer driver, the card.
CudaFacts cuda_facts(const std::string& which = "");
std::unique_ptr<Card> open_cuda_card(const std::string& which = "");

}  // namespace plimsoll::gpu
