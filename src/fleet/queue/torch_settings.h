// Settings for the allocator of a command's PyTorch, on GPUs that others use too.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::queue {

struct TorchVersion {
  int major = 0, minor = 0;
  auto operator<=>(const TorchVersion&) const = default;
};

// The version of the PyTorch that `program` uses, which is a Python or a script of its environment (torchrun,
// accelerate) and is looked for in `path` where it names no folder; the oldest where there are several.
// Nothing is run.
std::optional<TorchVersion> find_torch(const std::string& program, const std::filesystem::path& folder,
                                       const std::string& path, const std::string& home);

// The programs in a shell script that may be a Python with PyTorch: python, torchrun, accelerate, deepspeed,
// and those in the bin/ of an environment that is activated.
std::vector<std::string> python_programs(const std::string& script);

// NAME=VALUE for a command of these words, run in `folder` with the worker's environment and `environment`;
// none where the version is not known or has no such settings, or where some are set already. For a shell
// script the programs that it starts count; what a container holds is not known.
std::vector<std::string> allocator_settings(const std::vector<std::string>& words,
                                            const std::vector<std::string>& environment,
                                            const std::filesystem::path& folder);

}  // namespace plimsoll::queue
