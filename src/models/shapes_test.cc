#include "models/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "models/family.h"
#include "models/model.h"
#include "models/spec.h"

namespace plimsoll {
namespace {

int64_t parameters_of(const ModelShape& shape) {
  const ModelSpec spec = parse_model_spec(shape.config_json(), shape.name);
  // An encoder's are those of the checkpoint without a head.
  if (spec.family == "modernbert")  // and with the head for words, which has the same layer and a bias
    return count_parameters(spec, 2) - 2 * (spec.hidden + 1) + spec.vocab;
  if (spec.encoder) return count_parameters(spec, 2) - 2 * (spec.hidden + 1);
  return count_parameters(spec);
}

TEST(ModelShapes, are_a_hundred_with_names_of_their_own) {
  std::set<std::string> names;
  size_t all = 0;
  for (const ModelShape& shape : model_shapes()) {
    names.insert(shape.name);
    names.insert(shape.same_shape.begin(), shape.same_shape.end());
    all += 1 + shape.same_shape.size();
    EXPECT_FALSE(shape.source.empty()) << shape.name;
  }
  EXPECT_EQ(model_shapes().size(), 100U);
  EXPECT_EQ(names.size(), 213U);
  EXPECT_EQ(all, 213U);
}

TEST(ModelShapes, every_one_has_the_parameters_that_are_stated_or_its_refusal_names_what_is_missing) {
  int64_t trained = 0;
  for (const ModelShape& shape : model_shapes()) {
    const std::string why = why_not_trained(shape);
    if (why.empty()) {
      ++trained;
      EXPECT_EQ(parameters_of(shape), shape.parameters) << shape.name;
      continue;
    }
    const std::string family = shape.config_json().at("model_type");
    const bool names_it =
        why.find("'" + family + "'") != std::string::npos || why.find("head size") != std::string::npos;
    EXPECT_TRUE(names_it) << shape.name << ": " << why;
    EXPECT_EQ(why.find(shape.name), std::string::npos) << why;
  }
  EXPECT_GE(trained, 92);  // of the families of today, SmolLM3 and texts within models of images among them
}

TEST(ModelShapes, are_found_in_any_case_and_without_an_owner) {
  for (const char* name : {"Qwen/Qwen2.5-7B", "qwen2.5-7b", "QWEN/qwen2.5-7B"}) {
    const auto found = find_shape(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->name, "Qwen/Qwen2.5-7B");
  }
  const auto alike = find_shape("qwen2.5-coder-7b-instruct");
  ASSERT_TRUE(alike);
  EXPECT_EQ(alike->name, "Qwen/Qwen2.5-Coder-7B-Instruct");
  EXPECT_EQ(alike->shape->name, "Qwen/Qwen2.5-7B");
  EXPECT_FALSE(find_shape("qwen2.5-8b"));
  EXPECT_FALSE(find_shape(""));
}

TEST(ModelShapes, names_that_are_alike_share_sizes_and_have_no_bound_of_positions) {
  const auto own = find_shape("Qwen/Qwen3-4B"), alike = find_shape("Qwen/Qwen3-4B-Instruct-2507");
  ASSERT_TRUE(own && alike);
  EXPECT_FALSE(own->is_alike());
  EXPECT_TRUE(alike->is_alike());
  EXPECT_TRUE(own->config_json() == own->shape->config_json());
  const ModelSpec spec = parse_model_spec(alike->config_json(), alike->name);
  EXPECT_GT(*spec.longest_text(), int64_t{1} << 24);
  EXPECT_EQ(count_parameters(spec), own->shape->parameters);
}

TEST(ModelShapes, encoders_have_other_spellings_alone_as_their_positions_are_weights) {
  for (const ModelShape& shape : model_shapes()) {
    if (!why_not_trained(shape).empty() || !parse_model_spec(shape.config_json(), shape.name).encoder)
      continue;
    for (const std::string& name : shape.same_shape) EXPECT_FALSE(find_shape(name)->is_alike()) << name;
  }
}

TEST(ModelShapes, no_name_of_a_model_that_is_trained_reads_as_one_of_a_family_that_is_not) {
  for (const ModelShape& shape : model_shapes()) {
    if (!why_not_trained(shape).empty()) continue;
    EXPECT_EQ(refusal_of_name(shape.name), "");
    for (const std::string& alike : shape.same_shape) EXPECT_EQ(refusal_of_name(alike), "");
  }
  EXPECT_NE(refusal_of_name("GPT2-medium").find("model_type 'gpt2' is not supported"), std::string::npos);
  EXPECT_NE(refusal_of_name("microsoft/phi-2").find("'phi'"), std::string::npos);
  EXPECT_EQ(refusal_of_name("Qwen/Qwen9-7B"), "");
  EXPECT_EQ(refusal_of_name(""), "");
}

TEST(ModelShapes, names_that_are_nearly_one_have_it_first) {
  const auto near = nearest_shapes("qwen2.5-8b");
  ASSERT_EQ(near.size(), 4U);
  EXPECT_TRUE(std::any_of(near.begin(), near.end(), [](const auto& n) { return n == "Qwen/Qwen2.5-7B"; }));
  EXPECT_EQ(nearest_shapes("meta-llama/Llama-3.2-1").front(), "meta-llama/Llama-3.2-1B");
  EXPECT_TRUE(nearest_shapes("zzzzzzzzzzzz").empty());
}

TEST(ModelShapes, quantised_repositories_lead_to_what_they_quantise) {
  for (const auto& [name, format] :
       {std::pair{"someone/Qwen2.5-7B-Instruct-GGUF", "GGUF"},
        std::pair{"Qwen/Qwen2.5-7B-Instruct-AWQ", "AWQ"},
        std::pair{"unsloth/Qwen2.5-7B-Instruct-bnb-4bit", "bitsandbytes"},
        std::pair{"unsloth/Qwen2.5-7B-Instruct-unsloth-bnb-4bit", "bitsandbytes"},
        std::pair{"Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "GPTQ"}}) {
    const auto quantised = quantised_name(name);
    ASSERT_TRUE(quantised) << name;
    EXPECT_EQ(quantised->base, "Qwen2.5-7B-Instruct");
    EXPECT_EQ(quantised->format, format);
    EXPECT_TRUE(find_shape(quantised->base));
  }
  for (const auto& [name, format, base] :
       {std::tuple{"someone/Qwen2.5-7B-Instruct-Q4_K_M-GGUF", "GGUF", "Qwen/Qwen2.5-7B-Instruct"},
        std::tuple{"mlx-community/Qwen2.5-7B-Instruct-4bit", "MLX", "Qwen/Qwen2.5-7B-Instruct"},
        std::tuple{"someone/Qwen2.5-7B-Instruct-4bit", "fewer bits", "Qwen/Qwen2.5-7B-Instruct"},
        std::tuple{"someone/Qwen2.5-7B-Instruct-AWQ-4bit", "AWQ", "Qwen/Qwen2.5-7B-Instruct"},
        std::tuple{"someone/Qwen2.5-7B-Instruct.IQ3_XS", "GGUF", "Qwen/Qwen2.5-7B-Instruct"},
        std::tuple{"casperhansen/llama-3-8b-instruct-awq", "AWQ", "meta-llama/Meta-Llama-3-8B-Instruct"},
        std::tuple{"TheBloke/Llama-2-7B-GGUF", "GGUF", "meta-llama/Llama-2-7b-hf"},
        std::tuple{"bartowski/microsoft_phi-4-GGUF", "GGUF", "microsoft/phi-4"}}) {
    const auto quantised = quantised_name(name);
    ASSERT_TRUE(quantised) << name;
    EXPECT_EQ(quantised->format, format) << name;
    const auto found = quantised->base_shape();
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->name, base);
  }
  EXPECT_FALSE(quantised_name("Qwen/Qwen2.5-7B-Instruct"));
  EXPECT_FALSE(quantised_name("someone/-Q4_0"));
  EXPECT_FALSE(quantised_name("someone/-GGUF"));
}

TEST(ModelShapes, a_config_that_says_something_else_is_named_by_key) {
  const NamedShape known = *find_shape("Qwen2.5-7B");
  nlohmann::json config = known.config_json();
  EXPECT_TRUE(differences(config, known).empty());
  config["vocab_size"] = 151936;
  config["torch_dtype"] = "float16";
  config["rms_norm_eps"] = 0.000001;
  config.erase("head_dim");
  const auto differing = differences(config, known);
  EXPECT_EQ(difference_words(differing), "config.json says vocab_size 151936, the catalogue 152064");
  EXPECT_EQ(difference_words({}), "");
  // Models of one shape may have positions, a base of RoPE and an epsilon of their own.
  config["max_position_embeddings"] = 32768;
  config["rope_theta"] = 10000.0;
  config["rms_norm_eps"] = 0.5;
  EXPECT_EQ(difference_words(differences(config, *find_shape("Qwen2-7B-Instruct"))),
            difference_words(differing));
  EXPECT_EQ(differences(config, known).size(), 4U);
}

}  // namespace
}  // namespace plimsoll
