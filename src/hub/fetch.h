// Downloads a model or a data set from the hub into the Hugging Face cache, in the layout of huggingface_hub:
// transformers, PEFT and `hf` find it there, and what they have fetched is not fetched again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/listing.h"
#include "recipe/hub.h"

namespace plimsoll::hub {

struct FetchOptions {
  HubKind kind = HubKind::model;
  std::string name;               // "Qwen/Qwen2.5-7B"
  std::string revision = "main";  // a branch, a tag or a commit
  Wanted wanted = Wanted::all;
};

struct FetchProgress {
  int64_t bytes = 0, total = 0;  // of all files that were not there; `bytes` includes what an earlier try had
};

struct FetchWatch {
  std::function<void(const FetchProgress&)> progress;
  std::function<void(const std::string&)> say;  // of waits
};

struct FetchResult {
  std::filesystem::path folder;  // the snapshot
  std::string commit;
  std::vector<HubFile> files;
  int64_t bytes = 0;     // of all files
  int64_t received = 0;  // over the network, now
};

// Each file is received next to its place (blobs/CHECKSUM.incomplete), resumes from there after a broken
// connection or a killed process, and takes its name only with the right size and checksum, flushed to disk.
// The snapshot's links and refs appear when all files are there. If two processes want a file, one receives
// it and the other waits. Throws UsageError (unknown, private, gated, no connection allowed), DamagedError
// for a wrong checksum, StoppedError (network, full disk; the disk's room is looked at first).
FetchResult fetch(const FetchOptions& options, const FetchWatch& watch);

}  // namespace plimsoll::hub
