// Makes a finished run into what others serve: a merged folder, a GGUF file, a folder for Ollama, an adapter
// for vLLM. Each is read back and checked by the losses of rows before it appears, whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "infer/evaluate.h"
#include "passes/quantise.h"
#include "tools/export_check.h"
#include "tools/gguf_kinds.h"

namespace plimsoll {

enum class ExportTo : uint8_t { merged, gguf, ollama, vllm };
// The weights that an adapter is merged into: those that it was trained over (of a QLoRA run the quantised ones), or the
// base's as its folder has them.
enum class MergeInto : uint8_t { trained, base };

struct ExportOptions : EvalOptions {  // folder: the run's; data, limit: of the check
  ExportTo to = ExportTo::merged;
  std::filesystem::path target;     // a folder that must not exist yet
  std::optional<GgufKind> kind;     // none: as the weights are stored
  std::optional<MergeInto> into;    // none: trained
  std::optional<double> tolerance;  // none: usual_tolerance()
  // Called when all files are written and none is checked, with the folder that they are in: for tests.
  std::function<void(const std::filesystem::path&)> before_check;
};

struct ExportedFile {
  std::string name;
  int64_t bytes = 0;
};

struct ExportResult {
  std::vector<ExportedFile> files;
  int64_t bytes = 0;  // of all
  LossCheck check;
  // The mean loss over the quantised weights, of a QLoRA run whose adapter is exported for the base's own. `check`
  // compares with the adapter over the base's own.
  std::optional<double> over_quantised;
  WeightFormat format = WeightFormat::nf4;  // of these weights
  std::string device;                       // of the check
  std::vector<std::string> notes;           // where the export does not hold all that the run is
  std::vector<std::string> next;            // commands
};

// "loss_of_run_over_nf4": the name of ExportResult::over_quantised in JSON.
std::string over_key(const ExportResult& result);

// Throws UsageError for what cannot be exported so, with what can; DoesNotFitError before anything is written
// where the check does not fit into memory; StoppedError where the disk has no room; DamagedError for an
// export that does not do as the run does.
ExportResult export_run(const ExportOptions& options);

}  // namespace plimsoll
