// Lists the files of a repository on the hub, and chooses those that a run needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hub/digest.h"
#include "recipe/hub.h"

namespace plimsoll::hub {

// Names of files between slashes: none empty, none "." or "..", no backslash, no control character.
bool stays_below(std::string_view name);

struct HubFile {
  std::string name;  // relative to the repository, with / between folders; never leaves it
  int64_t bytes = 0;
  Digest::Kind kind = Digest::Kind::git_blob;
  std::string digest;  // in hexadecimal digits
};

struct Listing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<HubFile> files;
};

// Reads the answer of /api/models/NAME/revision/REVISION?blobs=true. Throws DamagedError that starts with
// `where` for what is no such answer; names that would lead out of the repository are left out.
Listing read_listing(std::string_view json, const std::string& where);

enum class Wanted : uint8_t { all, config_only };

// The files to fetch. For a model: configuration, tokenizer and chat template, and for Wanted::all the
// weights in safetensors; a second copy of the weights in another layout is left out. For a data set: its
// files of rows. Throws UsageError where a model has weights in pickles alone, which run code when they are
// read, or where there is nothing to fetch.
std::vector<HubFile> wanted_files(const Listing& listing, HubKind kind, Wanted wanted,
                                  const std::string& name);

}  // namespace plimsoll::hub
