// The layout problems of tests/layout: a header line, then one buffer a line, with the op after its last one.
//
//   id,lower,upper,size
//   model.layers.0.x,3,18,4096
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "layout/problem.h"
#include "layout/validator.h"

namespace plimsoll::layout {

inline Problem read_problem(const std::filesystem::path& path, int64_t alignment) {
  Problem problem{.buffers = {}, .alignment = alignment};
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  check_internal(line == "id,lower,upper,size", path.string() + ": is no problem of tests/layout");
  while (std::getline(file, line)) {
    const size_t comma = line.find(',');
    int first = 0, end = 0;
    long long bytes = 0;
    const bool read = comma != std::string::npos &&
                      std::sscanf(line.c_str() + comma, ",%d,%d,%lld", &first, &end, &bytes) == 3;
    check_internal(read && first < end, path.string() + ": " + line);
    problem.buffers.push_back({line.substr(0, comma), bytes, first, end - 1});
  }
  return problem;
}

// The errors of a placement, a line each.
inline std::string faults(const Problem& problem, const Placement& placement) {
  std::string text;
  for (const Verdict& verdict : validate(problem, placement)) text += verdict.text + "\n";
  return text;
}

}  // namespace plimsoll::layout
