#include "tools/convert_model.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "files/atomic.h"
#include "files/new_folder.h"
#include "formats/load.h"
#include "formats/model_writer.h"
#include "runs/model_card.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

void check(const ConvertOptions& options) {
  if (!options.dtype && !options.shard_bytes)
    throw UsageError("convert: say what to change, with --dtype or --shard-size");
}

std::string change_words(const ConvertOptions& options, size_t files) {
  const std::string types = options.dtype ? "the weights as " + std::string(to_string(*options.dtype)) : "";
  const std::string count = std::to_string(files) + (files == 1 ? " file" : " files");
  return types + (options.dtype && options.shard_bytes ? ", " : "") +
         (options.shard_bytes ? "in " + count : "");
}

bool is_adapter_folder(const fs::path& folder) { return fs::exists(folder / "adapter_config.json"); }

}  // namespace

ConvertResult convert_model(const ConvertOptions& options) {
  const fs::path out = require_new(options.out, {options.folder});
  check(options);
  const bool adapter = is_adapter_folder(options.folder);
  const std::string stem = adapter ? "adapter_model" : "model";
  if (!adapter && options.dtype && read_config(options.folder).contains("quantization_config"))
    throw UsageError(
        options.folder.string() +
        ": is quantised; its types belong to the quantisation. Convert the 16-bit model instead");
  const ModelFolder model = ModelFolder::open(options.folder, stem);
  std::vector<Shard> shards = stored_shards(model, options.dtype);
  if (options.shard_bytes) shards = cut_into_shards(shards, *options.shard_bytes, stem);
  ConvertResult result;
  result.files = static_cast<int64_t>(shards.size());
  result.bytes_before = model.bytes();
  result.bytes = shards_bytes(shards);
  require_disk_space(out, result.bytes + result.bytes / 100, "the converted model",
                     "choose another folder with --out");
  NewFolder folder(out);
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  for (const Shard& shard : shards) {
    SafetensorsWriter writer(folder.path() / shard.file, shard.tensors, {{"format", "pt"}});
    for (const TensorSpec& spec : writer.tensors()) {
      const StoredTensor tensor = model.find(spec.name);
      copy_tensor(tensor, spec.dtype, writer, staging);
      result.tensors += 1;
      result.converted += tensor.entry->dtype == spec.dtype ? 0 : 1;
    }
    writer.finish();
  }
  write_shard_index(shards, folder.path(), stem);
  copy_model_files(options.folder, folder.path());
  if (options.dtype && !adapter) set_config_dtype(folder.path(), *options.dtype);
  write_file_atomically(folder.path() / "README.md",
                        converted_card(options.folder, change_words(options, shards.size())));
  folder.publish();
  return result;
}

}  // namespace plimsoll
