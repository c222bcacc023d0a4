// Looks up names of models and data sets of the Hugging Face hub in the local cache. Nothing is downloaded
// here: for an absent one the error names the command that fetches it (src/hub).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/document/document.h"

namespace plimsoll {

enum class HubKind : unsigned char { model, dataset };

// "Qwen/Qwen2.5-0.5B": what may be a name on the hub. Names without an owner count where `bare` is set.
bool is_hub_name(std::string_view text, bool bare = false);
// HF_HOME, or ~/.cache/huggingface.
std::filesystem::path hub_home();
// HF_HUB_CACHE, or hub_home()/hub.
std::filesystem::path hub_cache();
// The folder of a repository in the cache: hub_cache()/models--Qwen--Qwen2.5-0.5B.
std::filesystem::path hub_repository(HubKind kind, std::string_view name);
// The folder of the version that refs/main names, or of the only one there is.
std::optional<std::filesystem::path> find_in_hub_cache(HubKind kind, std::string_view name);
// The same of one version, by its commit; nothing where the cache does not hold it.
std::optional<std::filesystem::path> find_in_hub_cache(HubKind kind, std::string_view name,
                                                       std::string_view revision);
// The models of the cache that are called so, with their owners, sorted: "Qwen2.5-0.5B" finds
// "Qwen/Qwen2.5-0.5B". Letters may be small or large.
std::vector<std::string> models_called(std::string_view bare);
// The only one of those; nullopt without any. Throws UsageError that names all where there are several.
std::optional<std::string> model_called(std::string_view bare);
// Ends the message that a name leads nowhere: "; where the name is one of the hub's: plimsoll fetch NAME", or
// why a model of this name could not be trained.
std::string where_to_find(HubKind kind, std::string_view name);
// The name with its owner: of a name without one a likely owner is added, or OWNER to be replaced.
std::string likely_hub_name(std::string_view name);
// A model as a command's argument names it: the path where it is there, else the folder in the cache that the
// name leads to, else the path as it is. Throws UsageError for a name that must be downloaded first.
std::filesystem::path model_folder(const std::filesystem::path& named);
// A version in the cache as people call it: the name that leads to `folder`, and its commit. Nothing for
// other folders, and for versions that the name alone does not lead to.
struct HubModel {
  std::string name;  // "Qwen/Qwen2.5-0.5B"
  std::string revision;
};
std::optional<HubModel> hub_model_of(const std::filesystem::path& folder);
// The name of the model in a folder: its name on the hub, or the folder's own.
std::string model_name(const std::filesystem::path& folder);
// "plimsoll fetch Qwen/Qwen2.5-0.5B"
std::string download_command(HubKind kind, std::string_view name);

// The files of a split in a data set's folder, sorted: by the hub's naming
// (train_sft-00000-of-00003.parquet), else those with the split in their name or folder, or, for train where
// no file has one, all of them. `subset` is a folder or the start of names, where it is not empty. Throws
// UsageError where no file belongs to the split, or several subsets have it.
std::vector<std::string> split_files(const std::filesystem::path& folder, const std::string& split,
                                     const std::string& subset);

// The value of model, adapter, data.train or data.eval, with names of the hub replaced by paths of the cache
// where the recipe's folder has no such path.
struct Located {
  Node node;
  std::vector<std::string> missing;  // what is neither here nor in the cache, with what to do about it
};
Located locate_on_hub(std::string_view key, const Node& node, const std::filesystem::path& folder);

}  // namespace plimsoll
