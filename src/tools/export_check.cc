#include "tools/export_check.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "formats/load.h"
#include "models/spec.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "tools/convert_gguf.h"
#include "weights/gguf_names.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// The root of the mean square of what rounding a tensor to a type may change, as a part of its values': for
// blocks what the worst block of values has, one large one among small ones.
double rounding_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 1e-6;  // of norms' factors, which are 1 more than their weights there
    case GgufType::f16:
      return 1e-3;
    case GgufType::bf16:
      return 4e-3;
    case GgufType::q8_0:
      return 0.02;
    case GgufType::q6_k:
      return 0.06;
    case GgufType::q5_k:
      return 0.13;
    case GgufType::q4_k:
    case GgufType::q4_0:
      return 0.25;
  }
  throw InternalError("GGUF: unknown type");
}

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw DamagedError(
      formatted("{}: {}; nothing was exported. Repeat the command, and report it if it happens again",
                file.filename().string(), what));
}

// The difference of two tensors as a part of the second's values with `added`, as the file holds them.
double difference_of(const StoredTensor& made, const StoredTensor& exact, double added,
                     std::span<std::byte> staging) {
  constexpr int64_t kPiece = int64_t{1} << 18;
  std::vector<float> a(kPiece), b(kPiece);
  const int64_t count = exact.entry->shape.elements();
  double squares = 0, all = 0;
  for (int64_t at = 0; at < count; at += kPiece) {
    const auto size = static_cast<size_t>(std::min(kPiece, count - at));
    load_elements(made, at, std::as_writable_bytes(std::span(a).first(size)), DType::f32, staging);
    load_elements(exact, at, std::as_writable_bytes(std::span(b).first(size)), DType::f32, staging);
    for (size_t i = 0; i < size; ++i) {
      const double apart = static_cast<double>(a[i]) - b[i];
      squares += apart * apart;
      all += (b[i] + added) * (b[i] + added);
    }
  }
  return squares == 0 ? 0 : std::sqrt(squares / all);
}

void check_tensors(const fs::path& view, const fs::path& model_folder) {
  const ModelFolder made = open_weights(view), exact = ModelFolder::open(model_folder);
  const GgufFile file = GgufFile::open(view / kGgufFile);
  const ModelSpec spec = read_model_spec(model_folder / "config.json");
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  for (const std::string& name : made.names()) {
    const StoredTensor stored = made.find(name), original = exact.find(name);
    if (stored.entry->shape != original.entry->shape)
      refuse(view / kGgufFile, formatted("its {} is {}, that of the model {}", name,
                                         stored.entry->shape.to_string(), original.entry->shape.to_string()));
    const GgufType type = file.tensors().at(gguf_name(spec, name)).type;
    const double difference = difference_of(stored, original, gguf_form(spec, name).added, staging);
    if (!(difference <= rounding_of(type)))
      refuse(view / kGgufFile,
             formatted("its {} differs from the model's by {} % of its values, more than {} rounds", name,
                       format_number("%.3g", 100 * difference), to_string(type)));
  }
}

// Keys of the head that are whole numbers of the model.
void check_numbers(const GgufFile& file, const ModelSpec& spec) {
  const std::string architecture = gguf_architecture(spec);
  const auto expect = [&](const std::string& key, const nlohmann::json& wanted) {
    const nlohmann::json* found = file.value(key);
    if (found == nullptr || *found != wanted)
      refuse(file.path(), formatted("{} is {}, and the model's {}", key,
                                    found != nullptr ? found->dump() : "absent", wanted.dump()));
  };
  expect("general.architecture", architecture);
  for (const auto& [key, value] : {std::pair{".block_count", spec.layers},
                                   {".embedding_length", spec.hidden},
                                   {".feed_forward_length", spec.mlp_width},
                                   {".attention.head_count", spec.heads},
                                   {".attention.head_count_kv", spec.kv_heads},
                                   {".attention.key_length", spec.head_dim},
                                   {".vocab_size", spec.vocab}})
    expect(architecture + key, value);
  expect(architecture + ".attention.layer_norm_rms_epsilon", static_cast<float>(spec.rms_norm_eps));
  expect(architecture + ".rope.freq_base", static_cast<float>(spec.rope.theta));
}

SpecialTokens special_of(const fs::path& folder) {
  const auto path = Tokenizer::find_file(folder);
  return path ? read_special_tokens(folder, Tokenizer::from_file(*path)) : SpecialTokens{};
}

void check_tokens(const GgufFile& file, const fs::path& model) {
  const auto path = Tokenizer::find_file(model);
  check_internal(path.has_value(), "a GGUF without a tokenizer");
  const Tokenizer tokenizer = Tokenizer::from_file(*path);
  const SpecialTokens special = read_special_tokens(model, tokenizer);
  const auto expect = [&](const char* key, const std::optional<int32_t>& wanted) {
    const nlohmann::json* found = file.value(key);
    const auto text = [](const auto& id) { return id ? std::to_string(*id) : std::string("absent"); };
    const std::optional<int64_t> there =
        found != nullptr ? std::optional(found->get<int64_t>()) : std::nullopt;
    if (there != (wanted ? std::optional<int64_t>(*wanted) : std::nullopt))
      refuse(file.path(), formatted("{} is {}, and the model's {}", key, text(there), text(wanted)));
  };
  expect("tokenizer.ggml.eos_token_id", special.end_of_text);
  expect("tokenizer.ggml.bos_token_id", special.bos);
  expect("tokenizer.ggml.padding_token_id", special.pad);
  expect("tokenizer.ggml.eot_token_id",
         turn_end_beside(special, tokenizer, ChatTemplate::of_folder(model, std::nullopt)));
  const nlohmann::json* tokens = file.value("tokenizer.ggml.tokens");
  for (const int32_t id : special.eos)
    if (tokens == nullptr || static_cast<size_t>(id) >= tokens->size() ||
        tokens->at(static_cast<size_t>(id)) != tokenizer.token(id))
      refuse(file.path(), formatted("its token {} is not the end token {}", id, tokenizer.token(id)));
}

}  // namespace

LossCheck compare_losses(const LossResult& run, const LossResult& exported, double tolerance,
                         const std::string& what) {
  LossCheck check{.rows = run.rows,
                  .tokens = run.target_tokens,
                  .run = run.loss,
                  .exported = exported.loss,
                  .tolerance = tolerance};
  bool same = run.each.size() == exported.each.size();
  double apart = 0, all = 0;
  for (size_t i = 0; same && i < run.each.size(); ++i) {
    const RowLoss &own = run.each[i], &other = exported.each[i];
    same = own.count == other.count;
    if (own.count == 0) continue;
    const double difference = std::abs(own.sum - other.sum);
    apart += difference;
    all += own.count;
    check.largest = std::max(check.largest, difference / own.count);
  }
  if (!same) refuse(what, "it cuts the rows into other tokens than the run does");
  check.difference = all > 0 ? apart / all : 0;
  if (!(check.difference <= tolerance))
    refuse(
        what,
        formatted(
            "its loss over {} rows is {} and the run's {}: they differ by {} a token, more than the {} that "
            "rounding explains (--tolerance)",
            format_count(check.rows), format_number("%.6f", check.exported), format_number("%.6f", check.run),
            format_number("%.3g", check.difference), format_number("%.3g", tolerance)));
  return check;
}

double usual_tolerance(GgufKind kind, DType compute) {
  const double of_compute = compute == DType::f32 ? 1e-4 : 0.03;
  switch (kind) {
    case GgufKind::f32:
      return of_compute;
    case GgufKind::f16:
      return std::max(of_compute, 0.005);
    case GgufKind::bf16:
      return 0.03;
    case GgufKind::q8_0:
      return 0.03;
    case GgufKind::q5_k_m:
      return 0.1;
    case GgufKind::q4_k_m:
      return 0.2;
    case GgufKind::q4_0:
      return 0.3;
  }
  throw InternalError("GGUF: unknown kind");
}

void check_gguf(const fs::path& view, const fs::path& model) {
  check_tensors(view, model);
  const GgufFile file = GgufFile::open(view / kGgufFile);
  check_numbers(file, read_model_spec(model / "config.json"));
  check_tokens(file, model);
}

void check_end_tokens(const fs::path& exported, const fs::path& model, std::optional<int32_t> turn_end) {
  const SpecialTokens made = special_of(exported);
  SpecialTokens own = special_of(model);
  if (turn_end) own.eos.push_back(*turn_end);
  if (made.end_of_text != own.end_of_text || made.eos != own.eos)
    refuse(exported, "its end tokens are not those of the model that was trained");
}

std::optional<int32_t> turn_end_of(const fs::path& folder) {
  const auto path = Tokenizer::find_file(folder);
  if (!path) return std::nullopt;
  const Tokenizer tokenizer = Tokenizer::from_file(*path);
  return turn_end_beside(read_special_tokens(folder, tokenizer), tokenizer,
                         ChatTemplate::of_folder(folder, std::nullopt));
}

std::vector<std::string> end_texts(const fs::path& model, const std::optional<ChatTemplate>& chat) {
  std::vector<std::string> texts;
  const auto path = Tokenizer::find_file(model);
  if (!path) return texts;
  const Tokenizer tokenizer = Tokenizer::from_file(*path);
  const SpecialTokens special = read_special_tokens(model, tokenizer);
  for (const int32_t id : special.eos) texts.push_back(tokenizer.token(id));
  if (const auto end = turn_end_beside(special, tokenizer, chat)) texts.push_back(tokenizer.token(*end));
  return texts;
}

}  // namespace plimsoll
