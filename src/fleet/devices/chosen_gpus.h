// GPUs for the processes of one run: by name, or the first ones; all of one kind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/devices/gpu.h"

namespace plimsoll::devices {

using ChosenGpus = std::vector<const Gpu*>;

// The GPUs that a process may use, in CUDA's order.
class GpuChoice {
 public:
  // `problem`: why none could be asked, or empty. Both outlive it.
  GpuChoice(const std::vector<Gpu>& gpus, const std::string& problem) : gpus_(gpus), problem_(problem) {}

  // "cuda:1 (RTX 3060 12GB, GPU-1a2b3c4d)".
  [[nodiscard]] std::string words_of(const Gpu& gpu) const;
  // "cuda:0,cuda:2".
  [[nodiscard]] std::string numbers_of(const ChosenGpus& gpus) const;
  // Those that answer and are whole.
  [[nodiscard]] ChosenGpus usable() const;
  // Those by these names: numbers, or beginnings of UUIDs. Throws UsageError for one that is not there, that cannot be
  // used, that is named twice, and for a number whose GPU is not clear.
  [[nodiscard]] ChosenGpus named(const std::vector<std::string>& names) const;
  // The first `count` that can be used. Throws UsageError where there are fewer.
  [[nodiscard]] ChosenGpus first(int64_t count) const;
  // Throws UsageError for GPUs of two kinds; `why_not` says why a run cannot have a GPU, in words.
  template <class WhyNot>
  void require_one_kind(const ChosenGpus& gpus, const WhyNot& why_not) const {
    for (const Gpu* gpu : gpus)
      if (model_of(*gpu) != model_of(*gpus.front()))
        refuse_two_kinds(*gpus.front(), *gpu, why_not(*gpus.front()), why_not(*gpu));
  }

 private:
  [[nodiscard]] std::string number_of(const Gpu& gpu) const;
  [[nodiscard]] std::string list_of(const ChosenGpus& gpus) const;
  [[nodiscard]] ChosenGpus all() const;
  [[nodiscard]] const Gpu& find(const std::string& name) const;
  void require_order(const std::string& name) const;
  [[noreturn]] void refuse_unknown(const std::string& name) const;
  [[noreturn]] void refuse_two_kinds(const Gpu& one, const Gpu& other, const std::string& why_not_one,
                                     const std::string& why_not_other) const;

  const std::vector<Gpu>& gpus_;
  const std::string& problem_;
};

// The most of them that are of one kind.
ChosenGpus of_one_kind(const ChosenGpus& gpus);
// Its name for messages: "RTX 3060 12GB".
std::string kind_of(const Gpu& gpu);

}  // namespace plimsoll::devices
