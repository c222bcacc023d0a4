// Rotary positions: their settings in a config.json, and the inverse frequencies with the scaling variants in
// use. Formulas as in transformers' modeling_rope_utils.py; products that it forms in f32 are formed in f32
// here.
#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

// theta^(-2i/R)
void fill_plain(double theta, int64_t turned, std::span<float> frequencies) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(turned);
    frequencies[i] = 1.0F / std::pow(static_cast<float>(theta), exponent);
  }
}

void scale_llama3(const RopeSpec& rope, std::span<float> frequencies) {
  const double length = static_cast<double>(rope.original_length);
  const double low_wavelength = length / rope.low_freq_factor;
  const double high_wavelength = length / rope.high_freq_factor;
  for (float& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequency);
    if (wavelength < high_wavelength) continue;
    const double slow = static_cast<double>(frequency) / rope.factor;
    if (wavelength > low_wavelength) {
      frequency = static_cast<float>(slow);
      continue;
    }
    const double smooth =
        (length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    frequency = static_cast<float>((1 - smooth) * slow + smooth * static_cast<double>(frequency));
  }
}

void scale_yarn(const RopeSpec& rope, int64_t head_dim, std::span<float> frequencies) {
  const auto dims = static_cast<double>(head_dim);
  const auto correction = [&](double rotations) {
    return dims * std::log(static_cast<double>(rope.original_length) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast);
  double high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;  // avoids a division by zero
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const auto plain_frequency = static_cast<double>(frequencies[i]);
    frequencies[i] = static_cast<float>(plain_frequency / rope.factor * ramp + plain_frequency * (1 - ramp));
  }
}

}  // namespace

std::string rope_input(size_t which) { return which == 0 ? "inv_freq" : "inv_freq_" + std::to_string(which); }

void rope_frequencies(const RopeSpec& rope, int64_t turned, int64_t length, std::span<float> out) {
  const std::span<float> frequencies = out.first(out.size() - 1);
  if (rope.type == RopeType::none) {
    std::ranges::fill(frequencies, 0.0F);
    out.back() = 1.0F;
    return;
  }
  double theta = rope.theta;
  if (rope.type == RopeType::dynamic) {
    const auto original = static_cast<double>(rope.original_length);
    const double longest = std::max(static_cast<double>(length), original);
    const auto dims = static_cast<double>(turned);
    theta *= std::pow(rope.factor * longest / original - (rope.factor - 1), dims / (dims - 2));
  }
  fill_plain(theta, turned, frequencies);
  if (rope.type == RopeType::longrope) {
    const std::vector<float>& factors =
        length > rope.original_length ? rope.long_factors : rope.short_factors;
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
  }
  if (rope.type == RopeType::linear)
    for (float& frequency : frequencies) frequency /= static_cast<float>(rope.factor);
  if (rope.type == RopeType::llama3) scale_llama3(rope, frequencies);
  if (rope.type == RopeType::yarn) scale_yarn(rope, turned, frequencies);
  const bool stretches = rope.type == RopeType::yarn || rope.type == RopeType::longrope;
  out.back() = stretches ? static_cast<float>(rope.attention_factor) : 1.0F;
}

namespace {

void read_yarn(const ConfigReader& rope, RopeSpec& spec) {
  spec.beta_fast = rope.number("beta_fast", 32.0);
  spec.beta_slow = rope.number("beta_slow", 1.0);
  spec.truncate = rope.flag("truncate", true);
  const auto mscale = [&](double m) {
    return spec.factor <= 1 ? 1.0 : 0.1 * m * std::log(spec.factor) + 1.0;
  };
  const double numerator = rope.number("mscale", 0.0);
  const double denominator = rope.number("mscale_all_dim", 0.0);
  const double inferred =
      numerator != 0.0 && denominator != 0.0 ? mscale(numerator) / mscale(denominator) : mscale(1.0);
  spec.attention_factor = rope.number("attention_factor", inferred);
}

// The length that transformers calls the original one: for llama3, yarn and longrope the key next to the map before
// the one in it, for dynamic scaling the model's positions whatever the key states.
int64_t original_length(const ConfigReader& in, const ConfigReader& rope, const std::string& type,
                        const RopeFacts& facts, int64_t max_positions) {
  constexpr const char* kKey = "original_max_position_embeddings";
  if (facts.longrope_original > 0) return in.integer(kKey, 2, int64_t{1} << 40, facts.longrope_original);
  const int64_t inside = rope.integer(kKey, 1, int64_t{1} << 40, max_positions);
  return type == "dynamic" ? max_positions : in.integer(kKey, 1, int64_t{1} << 40, inside);
}

// Longrope's factors, one for each frequency.
std::vector<float> factors_of(const ConfigReader& rope, const char* key, const ModelSpec& model) {
  const auto wanted = static_cast<size_t>(model.rotary() / 2);
  if (!rope.has(key)) rope.fail(formatted("'{}' is missing", key));
  const ConfigReader::Json& list = rope.at(key);
  if (!list.is_array() || list.size() != wanted)
    rope.fail(formatted("'{}' must list {} numbers, half of the values of a head that turn", key, wanted));
  std::vector<float> factors;
  for (const ConfigReader::Json& factor : list) {
    if (!factor.is_number() || factor.get<double>() <= 0)
      rope.fail(formatted("'{}': {} must be a number above 0", key, factor.dump()));
    factors.push_back(factor.get<float>());
  }
  return factors;
}

void read_longrope(const ConfigReader& rope, const ModelSpec& model, RopeSpec& spec) {
  spec.type = RopeType::longrope;
  spec.short_factors = factors_of(rope, "short_factor", model);
  spec.long_factors = factors_of(rope, "long_factor", model);
  const auto original = static_cast<double>(spec.original_length);
  if (spec.original_length < 2) rope.fail("'original_max_position_embeddings' must be 2 or more");
  spec.factor = rope.number("factor", static_cast<double>(model.max_positions) / original);
  const double inferred =
      spec.factor <= 1 ? 1.0 : std::sqrt(1.0 + std::log(spec.factor) / std::log(original));
  spec.attention_factor = rope.number("attention_factor", inferred);
}

// Settings of a type that has a factor.
void read_scaling(const ConfigReader& rope, const std::string& type, RopeSpec& spec) {
  if (!rope.has("factor")) rope.fail("'factor' is missing");
  spec.factor = rope.number("factor", 1.0);
  if (spec.factor <= 0) rope.fail("'factor' must be positive");
  if (type == "linear") {
    spec.type = RopeType::linear;
  } else if (type == "dynamic") {
    spec.type = RopeType::dynamic;
  } else if (type == "llama3") {
    spec.type = RopeType::llama3;
    spec.low_freq_factor = rope.number("low_freq_factor", 1.0);
    spec.high_freq_factor = rope.number("high_freq_factor", 4.0);
    if (spec.high_freq_factor <= spec.low_freq_factor)
      rope.fail("'high_freq_factor' must exceed 'low_freq_factor'");
  } else if (type == "yarn") {
    spec.type = RopeType::yarn;
    read_yarn(rope, spec);
  } else {
    rope.fail(formatted(
        "rope type '{}' is not supported; supported: default, linear, dynamic, llama3, yarn, longrope",
        type));
  }
}

// Reads one map of settings; `theta`: where it states none.
RopeSpec read_settings(const ConfigReader& in, const ConfigReader& rope, double theta, const RopeFacts& facts,
                       const ModelSpec& model) {
  RopeSpec spec;
  std::string type = rope.text("rope_type", rope.text("type", "default"));
  spec.theta = rope.number("rope_theta", theta);
  spec.original_length = original_length(in, rope, type, facts, model.max_positions);
  if (spec.theta <= 0) rope.fail("'rope_theta' must be positive");
  if (!facts.may_turn_parts && rope.number("partial_rotary_factor", 1.0) != 1.0)
    rope.fail("partial_rotary_factor is not supported for this model_type");
  if (type == "default") return spec;
  if (type == "su")
    rope.fail(
        "rope type 'su' is longrope under an older name, which transformers 5 does not read; write longrope");
  if (type == "longrope" || facts.longrope_original > 0) {
    if (type != "longrope" && type != "yarn")
      rope.fail(formatted("rope type '{}' is not supported for this model_type; supported: default, longrope",
                          type));
    read_longrope(rope, model, spec);
    return spec;
  }
  read_scaling(rope, type, spec);
  return spec;
}

bool has_scaling(const ConfigReader& in) { return in.has("rope_scaling") && !in.at("rope_scaling").empty(); }

}  // namespace

const char* rope_key(const ConfigReader& in) { return has_scaling(in) ? "rope_scaling" : "rope_parameters"; }

namespace {

ConfigReader settings_of(const ConfigReader& in, const char* key) {
  if (!in.at(key).is_object()) in.fail(formatted("'{}' must be a map", key));
  return {in.at(key), formatted("{}: {}", in.where(), key)};
}

RopeSpec plain_rope(double theta, const ModelSpec& model) {
  return {.theta = theta, .original_length = model.max_positions};
}

// `rope_scaling` with `rope_theta` (before transformers 5) where it has settings, else `rope_parameters`.
RopeSpec read_values(const ConfigReader& in, const RopeFacts& facts, const ModelSpec& model) {
  const double theta = in.number("rope_theta", facts.theta);
  if (theta <= 0) in.fail("'rope_theta' must be positive");
  const char* const key = rope_key(in);
  if (!in.has(key)) return plain_rope(theta, model);
  return read_settings(in, settings_of(in, key), theta, facts, model);
}

// Each parameter may be fine and the frequencies not be: a factor of 1e-300, mscale against mscale_all_dim.
void require_finite(const ConfigReader& in, const RopeSpec& rope, const ModelSpec& spec) {
  std::vector<float> frequencies(static_cast<size_t>(spec.rotary() / 2 + 1));
  rope_frequencies(rope, spec.rotary(), spec.max_positions, frequencies);
  if (!std::all_of(frequencies.begin(), frequencies.end(), [](float f) { return std::isfinite(f); }))
    in.fail(
        "the rope parameters (rope_theta, rope_parameters or rope_scaling) give frequencies that are not "
        "finite");
}

}  // namespace

namespace {

// The share of a head that turns: the one among the settings before the one next to them.
int64_t rotary_of(const ConfigReader& in, const RopeFacts& facts, const ModelSpec& spec) {
  constexpr const char* kKey = "partial_rotary_factor";
  const char* const settings = rope_key(in);
  double part = in.number(kKey, facts.turned_part, 0.0, 1.0);
  if (in.has(settings)) part = settings_of(in, settings).number(kKey, part, 0.0, 1.0);
  const auto turned = static_cast<int64_t>(static_cast<double>(spec.head_dim) * part);
  if (turned < 2 || turned % 2 != 0)
    in.fail(formatted("partial_rotary_factor turns {} of {} values of a head; an even number is supported",
                      turned, spec.head_dim));
  return turned;
}

}  // namespace

void read_rope(const ConfigReader& in, const RopeFacts& facts, ModelSpec& spec) {
  if (facts.may_turn_parts) spec.rotary_dim = rotary_of(in, facts, spec);
  spec.rope = read_values(in, facts, spec);
  require_finite(in, spec.rope, spec);
}

namespace {

// The ropes of full and of sliding layers.
struct TwoRopes {
  RopeSpec full, sliding;
};

TwoRopes read_old_keys(const ConfigReader& in, const ThetasByLayer& thetas, const ModelSpec& model) {
  const double theta = in.number(thetas.full_key, thetas.full);
  const double sliding =
      thetas.sliding_key == nullptr ? thetas.sliding : in.number(thetas.sliding_key, thetas.sliding);
  if (theta <= 0 || sliding <= 0) in.fail(formatted("'{}' must be positive", thetas.full_key));
  const RopeSpec full = has_scaling(in) ? read_settings(in, settings_of(in, "rope_scaling"), theta, {}, model)
                                        : plain_rope(theta, model);
  return {full, plain_rope(sliding, model)};
}

TwoRopes read_by_layer(const ConfigReader& in, const ThetasByLayer& thetas, const ModelSpec& model) {
  const ConfigReader both = settings_of(in, "rope_parameters");
  const auto read = [&](const char* kind, double theta) {
    return both.has(kind) ? read_settings(in, settings_of(both, kind), theta, {}, model)
                          : plain_rope(theta, model);
  };
  for (const auto& [key, value] : in.at("rope_parameters").items())
    if (key != "full_attention" && key != "sliding_attention")
      both.fail(
          formatted("'{}' is not supported; give settings for full_attention and sliding_attention", key));
  const TwoRopes old = read_old_keys(in, thetas, model);
  const TwoRopes ropes{read("full_attention", old.full.theta), read("sliding_attention", old.sliding.theta)};
  if (ropes.sliding.goes_by_length(std::numeric_limits<int64_t>::max()))
    both.fail(
        "'sliding_attention': a rope type that goes by a text's length (dynamic, longrope) is not supported "
        "there");
  return ropes;
}

}  // namespace

void read_ropes_by_layer(const ConfigReader& in, const ThetasByLayer& thetas,
                         const std::vector<bool>& sliding, ModelSpec& spec) {
  const bool by_layer = in.has("rope_parameters");
  if (by_layer && has_scaling(in))
    in.fail("'rope_parameters' and 'rope_scaling' both describe RoPE; leave 'rope_scaling' out");
  const TwoRopes ropes = by_layer ? read_by_layer(in, thetas, spec) : read_old_keys(in, thetas, spec);
  require_finite(in, ropes.full, spec);
  require_finite(in, ropes.sliding, spec);
  const auto count = std::ranges::count(sliding, true);
  spec.rope = count == std::ssize(sliding) ? ropes.sliding : ropes.full;
  const bool same = ropes.full.type == RopeType::standard && ropes.sliding.type == RopeType::standard &&
                    ropes.full.theta == ropes.sliding.theta;
  if (count == 0 || count == std::ssize(sliding) || same) return;
  spec.other_ropes = {ropes.sliding};
  for (const bool one : sliding) spec.rope_of_layer.push_back(one ? 1 : 0);
}

}  // namespace plimsoll
