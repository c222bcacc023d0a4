#include "hub/listing.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"
#include "base/file_ending.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/units.h"
#include "files/json.h"

namespace plimsoll::hub {
namespace {

using nlohmann::json;

constexpr size_t kMostFiles = 200'000;
constexpr size_t kLongestName = 1000;
constexpr size_t kSha1Digits = 40, kSha256Digits = 64;
// Weights of other frameworks have configurations of their own, which nothing here reads.
constexpr std::array<std::string_view, 4> kOtherFrameworks = {"pytorch_model", "tf_model", "flax_model",
                                                              "onnx"};
constexpr std::array<std::string_view, 4> kTokenizerFiles = {"tokenizer.model", "spiece.model",
                                                             "sentencepiece.bpe.model", "vocab.txt"};
constexpr std::array<std::string_view, 6> kPickles = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack"};
constexpr std::array<std::string_view, 5> kRows = {".parquet", ".jsonl", ".json", ".csv", ".arrow"};

template <size_t n>
bool ends_with_one(std::string_view name, const std::array<std::string_view, n>& ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

const json* member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string text_of(const json& object, const char* key) {
  const json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

HubFile read_file(const json& entry, const std::string& name, const std::string& where) {
  HubFile file;
  file.name = name;
  const json* lfs = member(entry, "lfs");
  const json& facts = lfs != nullptr && lfs->is_object() ? *lfs : entry;
  const json* size = member(facts, "size");
  if (size == nullptr || !size->is_number_unsigned() || size->get<uint64_t>() > uint64_t{1} << 50)
    throw DamagedError(
        formatted("{}: does not say the size of {}; it is not a Hugging Face hub", where, name));
  file.bytes = size->get<int64_t>();
  file.kind = &facts == &entry ? Digest::Kind::git_blob : Digest::Kind::sha256;
  file.digest = file.kind == Digest::Kind::sha256 ? text_of(facts, "sha256") : text_of(entry, "blobId");
  if (!is_hex(file.digest, file.kind == Digest::Kind::sha256 ? kSha256Digits : kSha1Digits))
    throw DamagedError(
        formatted("{}: does not say the checksum of {}; it is not a Hugging Face hub", where, name));
  return file;
}

bool is_config(const HubFile& file) {
  const std::string& name = file.name;
  const bool other = std::any_of(kOtherFrameworks.begin(), kOtherFrameworks.end(),
                                 [&](std::string_view start) { return name.starts_with(start); });
  if (name.find('/') != std::string::npos || other) return false;
  return name.ends_with(".json") || name.ends_with(".jinja") || name == "merges.txt" ||
         std::find(kTokenizerFiles.begin(), kTokenizerFiles.end(), name) != kTokenizerFiles.end();
}

// Weights as transformers and PEFT name them; some folders hold them once more as consolidated.safetensors,
// or as model.fp16.safetensors. Where none has such a name, whatever is in safetensors.
std::vector<HubFile> weights_of(const Listing& listing) {
  static const std::regex kUsual("(adapter_)?model(-[0-9]{5}-of-[0-9]{5})?\\.safetensors");
  std::vector<HubFile> usual;
  std::vector<HubFile> any;
  for (const HubFile& file : listing.files) {
    if (file.name.find('/') != std::string::npos || !file.name.ends_with(".safetensors")) continue;
    any.push_back(file);
    if (file.name.size() < 100 && std::regex_match(file.name, kUsual)) usual.push_back(file);
  }
  const auto whole = std::find_if(usual.begin(), usual.end(),
                                  [](const HubFile& file) { return file.name == "model.safetensors"; });
  if (whole != usual.end())
    return {*whole};  // next to its own shards: transformers takes the single file too
  return usual.empty() ? any : usual;
}

void refuse_pickles(const Listing& listing, const std::string& name) {
  const auto pickle = std::find_if(listing.files.begin(), listing.files.end(),
                                   [](const HubFile& file) { return ends_with_one(file.name, kPickles); });
  if (pickle == listing.files.end())
    throw UsageError(formatted(
        "{}: the repository has no weights in safetensors; for the configuration alone: plimsoll fetch "
        "{} --config-only",
        name, name));
  throw UsageError(formatted(
      "{}: the repository has weights in pickles alone ({}), which run code when they are read; fetch "
      "takes safetensors. To plan: plimsoll fetch {} --config-only",
      name, pickle->name, name));
}

}  // namespace

bool stays_below(std::string_view name) {
  if (name.empty() || name.size() > kLongestName || printable(name) != name) return false;
  if (name.find('\\') != std::string_view::npos) return false;
  for (size_t at = 0; at <= name.size();) {
    const size_t slash = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, slash - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = slash + 1;
  }
  return true;
}

Listing read_listing(std::string_view text, const std::string& where) {
  const json answer = parse_json(text, where);
  Listing listing;
  listing.commit = text_of(answer, "sha");
  const json* siblings = member(answer, "siblings");
  if (!is_hex(listing.commit, kSha1Digits) || siblings == nullptr || !siblings->is_array())
    throw DamagedError(where +
                       ": is not the answer of a Hugging Face hub (no sha, no siblings); see HF_ENDPOINT");
  if (siblings->size() > kMostFiles)
    throw UsageError(formatted("{}: the repository has {} files, more than fetch takes ({})", where,
                               format_count(static_cast<int64_t>(siblings->size())),
                               format_count(kMostFiles)));
  for (const json& entry : *siblings)
    if (const std::string name = text_of(entry, "rfilename"); stays_below(name))
      listing.files.push_back(read_file(entry, name, where));
  return listing;
}

std::vector<HubFile> wanted_files(const Listing& listing, HubKind kind, Wanted wanted,
                                  const std::string& name) {
  std::vector<HubFile> files;
  const auto take = [&](auto belongs) {
    std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(files), belongs);
  };
  if (kind == HubKind::dataset) {
    take([](const HubFile& file) {
      return ends_with_one(in_small_letters(unpacked_name(file.name).string()), kRows);
    });
    if (files.empty())
      throw UsageError(name +
                       ": the repository has no files of rows (.parquet, .jsonl, .json, .csv, .arrow)");
    return files;
  }
  take(is_config);
  if (wanted == Wanted::all) {
    const std::vector<HubFile> weights = weights_of(listing);
    if (weights.empty()) refuse_pickles(listing, name);
    files.insert(files.end(), weights.begin(), weights.end());
  }
  if (files.empty())
    throw UsageError(name +
                     ": the repository has no configuration (config.json) and no weights in safetensors");
  return files;
}

}  // namespace plimsoll::hub
