// Libraries of the card's maker are looked for when a run starts: a program that is not linked with them runs on
// machines that have none.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace plimsoll::gpu {

using ReadVariable = std::function<const char*(const char*)>;  // as std::getenv

// A library by its names, the ones to try first before others, and the packages of Python that have it, as their folders
// below nvidia/ are called.
struct SoughtLibrary {
  const char* variable = nullptr;  // of the environment: it names a file, or is "none"
  std::vector<std::string> names;
  std::vector<std::string> packages;
};

// The files that are tried, in order: of each name what the loader looks up by itself, then those that are there in
// folders of CUDA and of Python's packages. What the variable names is all that is tried; none where that is "none".
std::vector<std::filesystem::path> library_places(const SoughtLibrary& sought, const ReadVariable& variable);

// The first of the places that open(place, reason) makes a library of; else nullptr, with the reason.
template <class Open>
auto open_first(const SoughtLibrary& sought, const ReadVariable& variable, Open&& open, std::string& reason) {
  decltype(open(std::filesystem::path(), reason)) library = nullptr;
  const std::vector<std::filesystem::path> places = library_places(sought, variable);
  if (places.empty()) reason = std::string(sought.variable) + "=none";
  for (const std::filesystem::path& place : places) {
    std::string why;
    if ((library = open(place, why)) != nullptr) break;
    // A file that exists and cannot be used explains more than a missing one.
    if (reason.empty() || place.has_parent_path()) reason = why;
  }
  return library;
}

}  // namespace plimsoll::gpu
