#include "jinja/template.h"

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "jinja/interpreter.h"
#include "jinja/lexer.h"

namespace plimsoll {

struct Template::Program {
  std::string name;
  std::string source;
  TemplateLimits limits;
  jinja::SyntaxTree tree;
};

namespace {

[[noreturn]] void throw_at(const std::string& name, const jinja::SyntaxFailure& failure) {
  throw TemplateError(formatted("{}:{}: {}", name, failure.line, failure.what()));
}

}  // namespace

Template Template::parse(std::string_view source, std::string name, const TemplateLimits& limits) {
  try {
    jinja::SyntaxTree tree = jinja::parse(source, limits);
    return Template(std::make_shared<const Program>(
        Program{std::move(name), std::string(source), limits, std::move(tree)}));
  } catch (const jinja::SyntaxFailure& failure) {
    throw_at(name, failure);
  }
}

Template::Output Template::render(const nlohmann::ordered_json& variables,
                                  const std::optional<std::tm>& now) const {
  std::vector<Variable> members;
  members.reserve(variables.size());
  for (const auto& [name, value] : variables.items()) members.push_back({name, &value});
  return render(members, now);
}

Template::Output Template::render(std::span<const Variable> variables,
                                  const std::optional<std::tm>& now) const {
  const Program& program = *program_;
  try {
    jinja::Variables values;
    for (const auto& [name, value] : variables) values.emplace(name, jinja::Value::from_json(*value));
    jinja::Output output = jinja::Interpreter(program.limits, now, values).run(program.tree);
    Output rendered{std::move(output.text), {}};
    for (const auto& [begin, end] : output.generated) rendered.generated.push_back({begin, end});
    return rendered;
  } catch (const jinja::SyntaxFailure& failure) {
    throw_at(program.name, failure);
  } catch (const jinja::Failure& failure) {
    throw TemplateError(formatted("{}: {}", program.name, failure.what()));
  }
}

bool Template::marks_generation() const { return program_->tree.marks_generation; }
const std::string& Template::name() const { return program_->name; }
const std::string& Template::source() const { return program_->source; }

void fuzz_template(std::string_view bytes) {
  static const auto kVariables = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "¿q?"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5}}}]},
                 {"role": "assistant", "content": " a "}],
    "tools": [{"type": "function", "function": {"name": "f"}}], "documents": null, "add_generation_prompt": true,
    "bos_token": "<s>", "eos_token": "</s>"})");
  TemplateLimits limits;
  limits.source_bytes = 1 << 16;
  limits.steps = 100'000;
  limits.output_bytes = 1 << 20;
  limits.value_bytes = 1 << 18;
  try {
    std::tm now{};
    now.tm_mday = 1;
    (void)Template::parse(bytes, "fuzz", limits).render(kVariables, now);
  } catch (const TemplateError&) {
  }
}

}  // namespace plimsoll
