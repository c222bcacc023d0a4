#include "tools/convert_gguf.h"

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/regular_file.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "files/atomic.h"
#include "files/run_folder.h"
#include "formats/load.h"
#include "models/model.h"
#include "models/spec.h"
#include "models/wrapper.h"
#include "recipe/hub.h"
#include "runs/model_card.h"
#include "weights/gguf_names.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// The kind of a file with matrices as they are stored.
GgufKind stored_as(DType dtype) {
  if (dtype == DType::bf16) return GgufKind::bf16;
  return dtype == DType::f16 ? GgufKind::f16 : GgufKind::f32;
}

class Writer {
 public:
  explicit Writer(const GgufOptions& options)
      : options_(options),
        spec_(read_model_spec(options.folder / "config.json")),
        model_(ModelFolder::open(options.folder)),
        staging_(static_cast<size_t>(kLoadStagingBytes)) {
    if (spec_.linear_attention || spec_.encoder_decoder || spec_.encoder)
      throw UsageError(formatted(
          "{}: GGUF is not supported for {}{}; programs that read safetensors take the folder: plimsoll convert "
          "{} --out FOLDER",
          options_.folder.string(), spec_.architecture,
          spec_.family == "modernbert" ? ", which llama.cpp reads for embeddings and ranking alone and with "
                                         "another gelu (modern-bert)"
                                       : "",
          quoted(options_.folder.string())));
    require_known_ropes();
    require_known_layers();
    list_tensors();
    describe();
    add_gguf_tokenizer(options.folder, spec_.vocab, head_);
    for (const RopeFactors& factors : rope_factors_)
      head_.add_tensor(factors.name, GgufType::f32, {std::ssize(factors.values)});
    for (const Tensor& tensor : tensors_) head_.add_tensor(tensor.name, tensor.type, shape_of(tensor));
    result_.tensors = std::ssize(tensors_) + std::ssize(rope_factors_);
    result_.bytes = head_.file_bytes();
  }

  GgufResult write(const fs::path& file) {
    GgufWriter writer(file, head_);
    for (const RopeFactors& factors : rope_factors_) {
      writer.write(std::as_bytes(std::span(factors.values)));
      writer.end_tensor();
    }
    for (const Tensor& tensor : tensors_) {
      write_tensor(tensor, writer);
      writer.end_tensor();
    }
    writer.finish();
    return result_;
  }
  [[nodiscard]] int64_t bytes() const { return result_.bytes; }

 private:
  static constexpr int64_t kLargestTokenizer = 256 * kMiB;
  static constexpr std::string_view kHead = "lm_head.weight", kTable = "token_embd.weight";
  static constexpr std::string_view kMultiToken =
      "mtp.";  // layers that guess more tokens, which do not train
  struct Tensor {
    std::string name;
    GgufType type = GgufType::f32;
    GgufForm form;
    StoredTensor stored;
  };

  // A tensor of what frequencies are divided by.
  struct RopeFactors {
    std::string name;
    std::vector<float> values;
  };

  void list_tensors() {
    int64_t halves = 0, eighths = 0, others = 0;
    for (const std::string& name : model_.names()) {
      const bool scores = name.starts_with(score_module(spec_) + ".");
      const bool beside =
          !spec_.wrapper.empty() && !name.starts_with(kTextModule) && name != kHead && !scores;
      if (beside || name.starts_with(kMultiToken)) {
        ++others;
        continue;
      }
      if ((name == kHead && spec_.tied_head) || name.ends_with("rotary_emb.inv_freq")) continue;
      Tensor tensor{
          .name = gguf_name(spec_, name), .form = gguf_form(spec_, name), .stored = model_.find(name)};
      if (tensor.name.empty())
        throw UsageError(formatted("{}: GGUF has no name for '{}'", options_.folder.string(), name));
      const Shape& shape = tensor.stored.entry->shape;
      const GgufKind kind = options_.kind.value_or(stored_as(tensor.stored.entry->dtype));
      if (shape.rank() > 1 && !tensor.form.squeezed) {
        const bool is_head = name == kHead || (spec_.tied_head && tensor.name == kTable);
        tensor.type =
            gguf_type_for(kind, {tensor.name, gguf_layer(tensor.name), spec_.layers, shape.last(), is_head});
        if (is_quantised(kind) && tensor.type == GgufType::f16) ++halves;
        if (is_quantised(kind) && kind != GgufKind::q8_0 && tensor.type == GgufType::q8_0) ++eighths;
      }
      if (tensor.name == kTable) kind_ = kind;
      if (tensor.name == kTable && shape[0] != spec_.vocab)
        throw UsageError(formatted("{}: the embedding has {} rows, config.json says {}",
                                   options_.folder.string(), format_count(shape[0]),
                                   format_count(spec_.vocab)));
      tensors_.push_back(std::move(tensor));
    }
    if (others > 0)
      result_.notes.push_back(
          format_count(others) +
          " tensors of towers, projectors and mtp layers are left out: the file is the text model alone");
    if (halves > 0)
      result_.notes.push_back(format_count(halves) + " matrices are f16: their rows are no multiple of 32");
    if (eighths > 0)
      result_.notes.push_back(format_count(eighths) +
                              " matrices are q8_0: their rows are no multiple of 256");
  }

  static Shape shape_of(const Tensor& tensor) {
    const Shape& shape = tensor.stored.entry->shape;
    return tensor.form.squeezed ? Shape{shape[0], shape.last()} : shape;
  }

  // Some architectures have windows there, in all but every n-th layer: n. 0: they have none.
  [[nodiscard]] size_t windows_but_every() const {
    if (spec_.family == "gemma2") return 2;
    return spec_.family == "gemma3_text" ? 6 : spec_.family == "olmo3" ? 4 : 0;
  }
  [[nodiscard]] int64_t window() const { return *std::ranges::max_element(spec_.windows); }

  void refuse_layers(const std::string& what) const {
    throw UsageError(formatted("{}: GGUF is not supported for a {} with {}: llama.cpp has no such model",
                               options_.folder.string(), spec_.architecture, what));
  }

  // llama.cpp takes such a model to be so, whatever a file says.
  void require_known_layers() const {
    if (spec_.norms_behind && (spec_.qkv_bias || spec_.o_bias)) refuse_layers("biases");
    if (spec_.family == "gemma2" && !spec_.tied_head) refuse_layers("a head of its own");
    if (!spec_.norms_before && spec_.tied_head) refuse_layers("a head that is the embedding");
    if (const size_t every = windows_but_every(); every > 0 && (window() > 0 || spec_.family != "olmo3"))
      for (size_t i = 0; i < spec_.windows.size(); ++i)
        if ((spec_.windows[i] > 0) != ((i + 1) % every != 0))
          refuse_layers(formatted("windows in other layers than all but every {}th", every));
    require_known_sliding_rope();
    if (spec_.delta_net) require_known_delta_net();
    if (!spec_.rounds_embedding_factor) return;
    // llama.cpp knows the largest of both by their number of layers.
    const bool largest = spec_.layers == (spec_.family == "gemma2" ? 46 : 62);
    const double scalar = static_cast<double>(largest ? spec_.hidden / spec_.heads : spec_.head_dim);
    if (std::abs(spec_.attention_scale * std::sqrt(scalar) - 1.0) > 1e-6)
      refuse_layers("a query_pre_attn_scalar other than " + std::to_string(static_cast<int64_t>(scalar)));
    if (spec_.family == "gemma2" && (spec_.attention_softcap == 0 || spec_.logit_softcap == 0))
      refuse_layers("no cap on scores or logits");
    if (spec_.family == "gemma2") return;
    if (spec_.logit_softcap > 0) refuse_layers("a cap on logits");
  }

  // Every n-th layer attends, n; 0: layers that attend lie otherwise.
  [[nodiscard]] int64_t attends_every() const {
    const std::vector<bool>& attends = spec_.delta_net->attends;
    const auto first = static_cast<size_t>(std::ranges::find(attends, true) - attends.begin());
    for (size_t i = 0; i < attends.size(); ++i)
      if (attends[i] != ((i + 1) % (first + 1) == 0)) return 0;
    return static_cast<int64_t>(first + 1);
  }
  void require_known_delta_net() const {
    if (spec_.family == "qwen3_next") refuse_layers("dense MLPs alone");
    if (spec_.qkv_bias) refuse_layers("biases");
    if (attends_every() == 0) refuse_layers("attention in other layers than every n-th");
    if (spec_.delta_net->key_dim != spec_.delta_net->value_dim)
      refuse_layers("keys and values of different sizes in its linear layers");
    if (spec_.rope.type != RopeType::standard) refuse_layers("RoPE scaling");
  }
  void describe_delta_net(const std::string& arch) {
    const DeltaNetSpec& delta = *spec_.delta_net;
    const auto count = [&](const char* key, int64_t value) {
      head_.add(arch + key, static_cast<uint32_t>(value));
    };
    count(".full_attention_interval", attends_every());
    count(".ssm.conv_kernel", delta.conv_taps);
    count(".ssm.state_size", delta.key_dim);
    count(".ssm.group_count", delta.key_heads);
    count(".ssm.time_step_rank", delta.value_heads);
    count(".ssm.inner_size", delta.value_width());
    // By time, height, width and a fourth: positions of text are the same in the first three.
    const auto pairs = static_cast<int32_t>(spec_.rotary() / 2);
    const std::array<int32_t, 4> sections = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    head_.add(arch + ".rope.dimension_sections", std::span<const int32_t>(sections));
  }

  // llama.cpp rotates sliding layers of Gemma 3 by a base of 10,000 and those of OLMo 3 by the other layers'
  // base, whatever a file says.
  void require_known_sliding_rope() const {
    if (windows_but_every() == 0 || spec_.family == "gemma2" || window() == 0) return;
    const RopeSpec& sliding = spec_.other_ropes.empty() ? spec_.rope : spec_.other_ropes.front();
    const double base = spec_.family == "gemma3_text" ? 1e4 : spec_.rope.theta;
    if (sliding.type != RopeType::standard || sliding.theta != base)
      refuse_layers(formatted("a rope_theta of sliding layers other than {}", format_number("%.10g", base)));
  }

  // llama.cpp takes every fourth layer of a SmolLM3 to be without RoPE, whatever a file says.
  void require_known_ropes() const {
    if (spec_.family != "smollm3") return;
    for (int64_t i = 0; i < spec_.layers; ++i)
      if (spec_.is_rotated(i) != ((i + 1) % 4 != 0))
        throw UsageError(
            options_.folder.string() +
            ": GGUF is not supported for a SmolLM3 whose layers without RoPE are not every fourth: "
            "llama.cpp has no such model");
  }

  // llama.cpp looks for Phi-3's own tokens in the vocabulary of a model whose name says that it is one, and opens no
  // other.
  [[nodiscard]] std::string name() const {
    std::string name = model_name(options_.folder);
    const std::string small = in_small_letters(name);
    if (small.find("phi-3") == std::string::npos && small.find("phi3") == std::string::npos) return name;
    const fs::path tokenizer = options_.folder / "tokenizer.json";
    if (!fs::exists(tokenizer)) return name;
    const std::string text = read_regular(tokenizer, kLargestTokenizer);
    return text.find("\"</s>\"") == std::string::npos ? "model" : name;
  }

  void describe() {
    const std::string arch = gguf_architecture(spec_);
    const auto count = [&](const char* key, int64_t value) {
      head_.add(arch + key, static_cast<uint32_t>(value));
    };
    const auto real = [&](const char* key, double value) {
      head_.add(arch + key, static_cast<float>(value));
    };
    head_.add("general.architecture", arch);
    head_.add("general.type", "model");
    head_.add("general.name", name());
    head_.add("general.file_type", static_cast<uint32_t>(kind_));
    if (is_quantised(kind_)) head_.add("general.quantization_version", uint32_t{2});
    count(".block_count", spec_.layers);
    count(".context_length", context());
    count(".embedding_length", spec_.hidden);
    count(".feed_forward_length", spec_.mlp_width);
    count(".attention.head_count", spec_.heads);
    count(".attention.head_count_kv", spec_.kv_heads);
    count(".attention.key_length", spec_.head_dim);
    count(".attention.value_length", spec_.head_dim);
    real(".attention.layer_norm_rms_epsilon", spec_.rms_norm_eps);
    count(".rope.dimension_count", spec_.rotary());
    count(".vocab_size", spec_.vocab);
    real(".rope.freq_base", spec_.rope.theta);
    if (spec_.delta_net) describe_delta_net(arch);
    describe_factors(arch);
    describe_scaling(arch);
  }

  // Writes windows, caps and the factors of embeddings, scores, residuals and logits.
  void describe_factors(const std::string& arch) {
    const auto real = [&](const char* key, double value) {
      head_.add(arch + key, static_cast<float>(value));
    };
    if (windows_but_every() > 0 && window() > 0)
      head_.add(arch + ".attention.sliding_window", static_cast<uint32_t>(window()));
    if (spec_.attention_softcap > 0) real(".attn_logit_softcapping", spec_.attention_softcap);
    if (spec_.logit_softcap > 0) real(".final_logit_softcapping", spec_.logit_softcap);
    if (spec_.query_position_beta != 0) real(".attention.temperature_scale", spec_.query_position_beta);
    if (spec_.family != "granite") return;
    real(".attention.scale", spec_.attention_scale);
    real(".embedding_scale", spec_.embedding_factor);
    real(".residual_scale", spec_.residual_factor);
    real(".logit_scale", 1.0 / spec_.logit_factor);
  }

  // Other architectures have no windows there: up to a window's length there is no difference.
  int64_t context() {
    int64_t length = spec_.max_positions;
    if (windows_but_every() > 0) return length;
    for (const int64_t window : spec_.windows)
      if (window > 0) length = std::min(length, window);
    if (length < spec_.max_positions)
      result_.notes.push_back(formatted(
          "a context of {} tokens, the model's sliding window, which GGUF does not know of this family",
          format_count(length)));
    return length;
  }

  // Frequencies are divided by the factors; llama.cpp takes the long ones where its context is longer than the original.
  void describe_longrope(const std::string& arch) {
    const RopeSpec& rope = spec_.rope;
    if (arch != "phi3") refuse_layers("RoPE scaling of type longrope");
    const std::string key = arch + ".rope.scaling.";
    head_.add(key + "original_context_length", static_cast<uint32_t>(rope.original_length));
    head_.add(key + "attn_factor", static_cast<float>(rope.attention_factor));
    rope_factors_ = {{"rope_factors_long.weight", rope.long_factors},
                     {"rope_factors_short.weight", rope.short_factors}};
    if (spec_.max_positions > rope.original_length)
      result_.notes.push_back(formatted(
          "longrope: llama.cpp chooses its factors by the context that it is started with (up to {} tokens the short "
          "ones), training by each text's length",
          format_count(rope.original_length)));
  }

  void describe_scaling(const std::string& arch) {
    const RopeSpec& rope = spec_.rope;
    if (rope.type == RopeType::longrope) return describe_longrope(arch);
    const std::string key = arch + ".rope.scaling.";
    const double usual = 0.1 * std::log(rope.factor) + 1.0;
    const bool unscaled = arch == "mistral3" && rope.attention_factor == 1.0;
    const bool usual_yarn = (unscaled || std::abs(rope.attention_factor - usual) < 1e-6) &&
                            rope.beta_fast == 32.0 && rope.beta_slow == 1.0 && rope.truncate;
    if (rope.type == RopeType::dynamic || (rope.type == RopeType::yarn && !usual_yarn))
      throw UsageError(
          formatted("{}: GGUF cannot say its RoPE scaling ({})", options_.folder.string(),
                    rope.type == RopeType::dynamic ? "dynamic" : "yarn with parameters of its own"));
    if (rope.type == RopeType::llama3) {
      // Other architectures have no tensor of frequencies there: llama.cpp does not open such a file.
      if (arch != "llama" && arch != "granite") refuse_layers("RoPE scaling of type llama3");
      RopeSpec plain = rope;
      plain.type = RopeType::standard;
      const auto half = static_cast<size_t>(spec_.head_dim / 2);
      std::vector<float> scaled(half + 1), unscaled(half + 1);
      rope_frequencies(rope, spec_.head_dim, spec_.max_positions, scaled);
      rope_frequencies(plain, spec_.head_dim, spec_.max_positions, unscaled);
      RopeFactors factors{"rope_freqs.weight", {}};
      for (size_t i = 0; i < half; ++i) factors.values.push_back(unscaled[i] / scaled[i]);
      rope_factors_.push_back(std::move(factors));
    } else if (rope.type != RopeType::standard) {
      head_.add(key + "type", rope.type == RopeType::linear ? "linear" : "yarn");
      head_.add(key + "factor", static_cast<float>(rope.factor));
      if (rope.type == RopeType::yarn && unscaled) head_.add(key + "yarn_log_multiplier", 1.0F);
    }
    // Yarn and the growth of queries both count from this length.
    if (rope.type == RopeType::yarn || spec_.query_position_beta != 0)
      head_.add(key + "original_context_length", static_cast<uint32_t>(rope.original_length));
  }

  // Some rows at a time; of rotated ones a head.
  void write_tensor(const Tensor& tensor, GgufWriter& writer) {
    const TensorEntry& entry = *tensor.stored.entry;
    const bool by_rows = tensor.form.head_rows > 0 || tensor.form.heads.move();
    const int64_t width = entry.shape.rank() > 1 || !by_rows ? entry.shape.last() : 1;
    const int64_t rows = entry.shape.elements() / width;
    const int64_t fit = std::max<int64_t>(1, kLoadStagingBytes / (width * 4));
    const int64_t step = tensor.form.head_rows > 0 ? tensor.form.head_rows : std::min(fit, rows);
    std::vector<float> values(static_cast<size_t>(step * width)), dealt;
    std::vector<std::byte> bytes;
    for (int64_t row = 0; row < rows; row += step) {
      const auto count = static_cast<size_t>(std::min(step, rows - row) * width);
      const auto part = std::span(values).first(count);
      load_rows(tensor, row, width, part);
      if (tensor.form.rates)
        for (float& value : part) value = -std::exp(value);
      if (tensor.form.added != 0)
        for (float& value : part) value += tensor.form.added;
      require_range(part, tensor);
      if (tensor.form.head_rows > 0) deal_halves(values, width, dealt);
      bytes.resize(static_cast<size_t>(gguf_bytes(tensor.type, {static_cast<int64_t>(count)})));
      quantise(part, tensor.type, bytes);
      writer.write(bytes);
    }
  }

  // Those that the file has from `row` on.
  void load_rows(const Tensor& tensor, int64_t row, int64_t width, std::span<float> to) {
    const GgufHeads& heads = tensor.form.heads;
    const auto load = [&](int64_t from, std::span<float> part) {
      load_elements(tensor.stored, from, std::as_writable_bytes(part), DType::f32, staging_);
    };
    if (!heads.move() || heads.columns) load(row * width, to);
    if (!heads.move()) return;
    const auto columns = static_cast<size_t>(width);
    std::vector<float> before(heads.columns ? columns : 0);
    for (size_t at = 0; at < to.size(); at += columns, ++row) {
      const auto part = to.subspan(at, columns);
      if (!heads.columns) {
        load(heads.in_checkpoint(row) * width, part);
        continue;
      }
      std::ranges::copy(part, before.begin());
      for (size_t c = 0; c < columns; ++c)
        part[c] = before[static_cast<size_t>(heads.in_checkpoint(static_cast<int64_t>(c)))];
    }
  }

  static void quantise(std::span<const float> values, GgufType type, std::span<std::byte> to) {
    const GgufBlock block = gguf_block(type);
    constexpr int64_t kWorthAThread = 64;  // blocks
    on_all_threads(std::ssize(values) / block.values, kWorthAThread, [&](int64_t begin, int64_t end) {
      const auto part = [](int64_t blocks, int64_t size) { return static_cast<size_t>(blocks * size); };
      to_gguf(values.subspan(part(begin, block.values), part(end - begin, block.values)), type,
              to.subspan(part(begin, block.bytes), part(end - begin, block.bytes)));
    });
  }

  // Rows 0, D/2, 1, D/2 + 1, ...
  static void deal_halves(std::vector<float>& values, int64_t width, std::vector<float>& dealt) {
    dealt.resize(values.size());
    const auto w = static_cast<std::ptrdiff_t>(width);
    const auto half = static_cast<std::ptrdiff_t>(values.size()) / w / 2;
    for (std::ptrdiff_t row = 0; row < half; ++row)
      for (std::ptrdiff_t second : {0, 1})
        std::copy_n(values.begin() + (row + second * half) * w, w, dealt.begin() + (2 * row + second) * w);
    std::copy(dealt.begin(), dealt.end(), values.begin());  // in place: others look at these bytes
  }

  void require_range(std::span<const float> values, const Tensor& tensor) const {
    const float most = gguf_range(tensor.type);
    for (const float value : values)
      if (!(std::abs(value) <= most))
        throw UsageError(formatted("{}: '{}' holds {}, which the type asked for cannot",
                                   options_.folder.string(), tensor.stored.entry->name,
                                   std::to_string(value)));
  }

  GgufOptions options_;
  ModelSpec spec_;
  ModelFolder model_;
  std::vector<std::byte> staging_;
  std::vector<Tensor> tensors_;
  std::vector<RopeFactors> rope_factors_;  // of llama3 and longrope
  GgufKind kind_ = GgufKind::f32;
  GgufHead head_;
  GgufResult result_;
};

// Hidden next to the file, and gone unless it got the file's name.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& out)
      : path_(out.parent_path() / (formatted(".{}.{}", out.filename().string(), getpid()))) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }
  // Never replaces a file that came since.
  void publish(const fs::path& out) const {
    std::error_code failed;
    fs::create_hard_link(path_, out, failed);
    if (failed && fs::exists(fs::symlink_status(out)))
      throw UsageError(out.string() + ": exists already; name a new file with --out");
    if (failed) fs::rename(path_, out);
    flush_name(out);
  }

 private:
  fs::path path_;
};

// A folder of the user's other files gets no card: it would tell of them.
bool write_card(const GgufOptions& options) {
  const fs::path folder = options.out.has_parent_path() ? options.out.parent_path() : fs::path(".");
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() != ".gguf") return false;
  const std::string file =
      options.out.filename().string() + (options.kind ? formatted(", {}", to_string(*options.kind)) : "");
  write_file_atomically(folder / kModelCard, gguf_card(options.folder, printable(file)));
  return true;
}

}  // namespace

int64_t gguf_file_bytes(const GgufOptions& options) { return Writer(options).bytes(); }

GgufResult convert_to_gguf(const GgufOptions& options) {
  if (fs::exists(fs::symlink_status(options.out)))
    throw UsageError(options.out.string() + ": exists already; name a new file with --out");
  if (fs::exists(options.folder / "adapter_config.json"))
    throw UsageError(formatted("{}: is an adapter; merge it first: plimsoll merge {} --out FOLDER",
                               options.folder.string(), quoted(options.folder.string())));
  if (read_config(options.folder).contains("quantization_config"))
    throw UsageError(options.folder.string() + ": is quantised; convert the 16-bit model instead");
  Writer writer(options);
  if (options.out.has_parent_path()) fs::create_directories(options.out.parent_path());
  require_disk_space(options.out, writer.bytes(), "the GGUF file", "choose another folder with --out");
  GgufResult result;
  {
    const TemporaryFile file(options.out);
    result = writer.write(file.path());
    file.publish(options.out);
  }
  result.card = write_card(options);
  return result;
}

}  // namespace plimsoll
