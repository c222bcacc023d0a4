// Problems as CSV in MiniMalloc's form: a header line, then one buffer a line. `lower` is the first op,
// `upper` the op after the last (exclusive), `size` is in bytes. Alignment is not part of the form.
//
//   id,lower,upper,size
//   model.layers.0.x,3,18,4096
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "layout/problem.h"

namespace plimsoll::layout {

// The four columns may stand in any order; further columns are refused, as in MiniMalloc they change the
// problem. Throws UsageError naming `source` and the line.
Problem parse_csv(std::string_view text, std::string_view source, int64_t alignment);
Problem read_csv(const std::filesystem::path& path, int64_t alignment);

// print_csv(parse_csv(t)) == t for text that print_csv wrote. Throws UsageError for a name the form cannot
// hold (empty, or with a comma, quote or line break) and for a last op without a successor.
std::string print_csv(const Problem& problem);
void write_csv(const std::filesystem::path& path, const Problem& problem);

}  // namespace plimsoll::layout
