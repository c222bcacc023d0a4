// Templates in the part of Jinja that chat templates are written in, rendered as transformers renders them.
// docs/howto/data.md says what is supported; everything else is refused with its line when a template is read.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "jinja/limits.h"

namespace plimsoll {

// "chat_template.jinja:12: ...": the template is wrong, or refuses what it was given.
struct TemplateError : UsageError {
  using UsageError::UsageError;
};

struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const ByteSpan&, const ByteSpan&) = default;
};

// A cheap handle on an immutable program: copy it freely, use it from any number of threads.
class Template {
 public:
  // `name` stands before the line in errors. Throws TemplateError.
  static Template parse(std::string_view source, std::string name, const TemplateLimits& limits = {});

  struct Output {
    std::string text;
    std::vector<ByteSpan> generated;  // what {% generation %} blocks printed, in order
  };
  struct Variable {
    std::string_view name;
    const nlohmann::ordered_json* value;
  };
  // strftime_now prints `now`, and is an error without it. Throws TemplateError.
  [[nodiscard]] Output render(std::span<const Variable> variables,
                              const std::optional<std::tm>& now = std::nullopt) const;
  // The members of an object.
  [[nodiscard]] Output render(const nlohmann::ordered_json& variables,
                              const std::optional<std::tm>& now = std::nullopt) const;
  // True if it has {% generation %} blocks.
  [[nodiscard]] bool marks_generation() const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] const std::string& source() const;

 private:
  struct Program;
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

// For a fuzz target: reads `bytes` as a template, with small limits, and renders it over a fixed
// conversation. Every error is a TemplateError and swallowed.
void fuzz_template(std::string_view bytes);

}  // namespace plimsoll
