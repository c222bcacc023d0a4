// Measures how fast this machine runs our kernels. Only `plimsoll calibrate` does so: planning reads what was
// measured.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "device/rates.h"
#include "ops/cpu_kernel.h"

namespace plimsoll {

struct CalibrateOptions {
  CpuSettings cpu;  // threads are started already
  bool quick = false;
  std::filesystem::path disk_folder;  // a temporary file is written and read there
  std::function<void(double share, const std::string& what)> progress = [](double, const std::string&) {};
};

DeviceRates calibrate(const CalibrateOptions& options);

}  // namespace plimsoll
