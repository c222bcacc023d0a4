// The files of plimsoll demo, compiled into the program: a tiny model's shape and tokenizer, and rows to train on.
#pragma once

#include <span>
#include <string_view>

namespace plimsoll {

struct DemoFile {
  const char* name;  // below the demo's folder
  std::string_view content;
};
std::span<const DemoFile> demo_files();

}  // namespace plimsoll
