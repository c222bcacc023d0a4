#include "jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "jinja/python_text.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

std::string rendered(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  return Template::parse(source, "t").render(variables).text;
}

std::string error_of(const std::string& source, const ordered_json& variables = ordered_json::object(),
                     const TemplateLimits& limits = {}) {
  try {
    (void)Template::parse(source, "t", limits).render(variables);
  } catch (const TemplateError& error) {
    return error.what();
  }
  return "no error";
}

// Renders 400 templates and compares with transformers' results (tests/parity/templates.py --golden writes
// the file).
TEST(Template, renders_as_transformers_does) {
  std::ifstream file("tests/golden/templates.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const ordered_json head = ordered_json::parse(line);
  std::tm now{};
  now.tm_year = head["now"][0].get<int>() - 1900;
  now.tm_mon = head["now"][1].get<int>() - 1;
  now.tm_mday = head["now"][2].get<int>();
  now.tm_hour = head["now"][3].get<int>();
  now.tm_min = head["now"][4].get<int>();
  now.tm_sec = head["now"][5].get<int>();
  now.tm_isdst = -1;
  std::mktime(&now);
  int equal = 0;
  while (std::getline(file, line)) {
    const ordered_json test = ordered_json::parse(line);
    const auto source = test["template"].get<std::string>();
    const ordered_json& variables = test.contains("variables") ? test["variables"] : head["variables"];
    try {
      const Template::Output output = Template::parse(source, "t").render(variables, now);
      ASSERT_FALSE(test.contains("error"))
          << source << " is refused by transformers, not by us: " << output.text;
      EXPECT_EQ(output.text, test["text"].get<std::string>()) << source;
      ordered_json spans = ordered_json::array();
      for (const ByteSpan& span : output.generated) spans.push_back({span.begin, span.end});
      EXPECT_EQ(spans, test["generated"]) << source;
      ++equal;
    } catch (const TemplateError& error) {
      EXPECT_TRUE(test.contains("error")) << source << ": " << error.what();
    }
  }
  EXPECT_GT(equal, 200);
}

TEST(Template, what_is_malformed_is_refused_with_its_line) {
  EXPECT_EQ(error_of("a\n{% if x %}\nb"), "t:2: 'if' is not closed: 'endif' is missing");
  EXPECT_EQ(error_of("{% for x in y %}{% if x %}{% endfor %}"), "t:1: 'endfor' closes nothing that is open");
  EXPECT_EQ(error_of("\n\n{{ 1 +"), "t:3: a tag is not closed: '}}' is missing");
  EXPECT_EQ(error_of("{{ 'abc }}"), "t:1: a text is not closed: its quote is missing");
  EXPECT_EQ(error_of("a\n{# b"), "t:2: a comment is not closed: '#}' is missing");
  EXPECT_EQ(error_of("{{ (1] }}"), "t:1: unexpected ']', expected ')'");
  EXPECT_EQ(error_of("{% else %}"), "t:1: 'else' closes nothing that is open");
  EXPECT_EQ(error_of("{% raw %}x"), "t:1: 'raw' is not closed: 'endraw' is missing");
  EXPECT_THAT(error_of("{{ \xff }}"), HasSubstr("not valid UTF-8"));
}

TEST(Template, unknown_names_are_refused_when_it_is_read) {
  EXPECT_EQ(error_of("{% if false %}\n{{ x|trimm }}{% endif %}"),
            "t:2: the filter 'trimm' is not supported; did you mean 'trim'?");
  EXPECT_EQ(error_of("{{ x is mappping }}"),
            "t:1: the test 'mappping' is not supported; did you mean 'mapping'?");
  EXPECT_EQ(error_of("{{ x.append(1) }}"),
            "t:1: the method 'append' is not supported: templates may not change values");
  EXPECT_THAT(error_of("{{ lipsum() }}"), HasSubstr("t:1: the function 'lipsum' is not supported"));
  EXPECT_EQ(error_of("\n{% include 'x' %}"), "t:2: the tag 'include' is not supported");
  EXPECT_EQ(error_of("{% frobnicate %}"), "t:1: there is no tag 'frobnicate'");
  EXPECT_THAT(error_of("{% macro m() %}{% generation %}{% endgeneration %}{% endmacro %}"),
              HasSubstr("'generation' inside of a macro"));
}

TEST(Template, errors_at_run_time_have_their_line) {
  EXPECT_EQ(error_of("a\n{{ x.y }}"), "t:2: 'x' is undefined, so it has no 'y'");
  EXPECT_EQ(error_of("{{ 'a' +\n x }}"), "t:1: 'x' is undefined");
  EXPECT_EQ(error_of("{{ raise_exception('no tools') }}"), "t:1: the template refuses this: no tools");
  EXPECT_THAT(error_of("{{ strftime_now('%Y') }}"), HasSubstr("data.date"));
  EXPECT_THAT(error_of("{{ [1]|map('nothing')|list }}"), HasSubstr("the filter 'nothing' is not supported"));
  EXPECT_THAT(error_of("{{ n }}", {{"n", 18446744073709551615ULL}}), HasSubstr("more than 64 bits"));
}

// Each of these would take all memory, all time or all of the stack.
TEST(Template, what_has_no_end_is_stopped) {
  const char* const kEndless[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{{ range(1000000000000) }}",
      "{{ 'a' * 100000000000 }}",
      "{{ [0] * 100000000000 }}",
      "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
      "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(0) }}",
      "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x }}{% endfor %}",
      "{% set x = 'a' * 100000 %}{{ x|replace('a', x) }}",
      "{% set x = 'a' * 100000 %}{{ x|list|join(x) }}",
      "{% set x = 'a' * 10000000 %}{% for i in range(1000) %}{% if 'b' in x %}{% endif %}{% endfor %}",
      "{% set x = 'a\n' * 1000000 %}{{ x|indent(1000) }}",
      "{{ 2 ** 100 }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
  };
  for (const char* source : kEndless) {
    const std::string error = error_of(source);
    EXPECT_THAT(error, HasSubstr("t:")) << source;
    EXPECT_NE(error, "no error") << source;
  }
}

TEST(Template, nesting_in_the_source_is_bounded) {
  const auto repeated = [](const std::string& text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  for (const int depth : {300, 100000}) {
    EXPECT_THAT(error_of("{{ " + repeated("(", depth) + "1" + repeated(")", depth) + " }}"),
                HasSubstr("nested deeper"));
    EXPECT_THAT(error_of("{{ " + repeated("[", depth) + repeated("]", depth) + " }}"),
                HasSubstr("nested deeper"));
    EXPECT_THAT(error_of("{{ " + repeated("not ", depth) + "1 }}"), HasSubstr("nested deeper"));
    EXPECT_THAT(error_of("{{ " + repeated("-", depth) + "1 }}"), HasSubstr("nested deeper"));
    EXPECT_THAT(error_of("{{ 1" + repeated(" + 1", depth) + " }}"), HasSubstr("nested deeper"));
    EXPECT_THAT(error_of("{{ x" + repeated(".a", depth) + " }}"), HasSubstr("nested deeper"));
    EXPECT_THAT(error_of("{{ x" + repeated("|trim", depth) + " }}"), HasSubstr("nested deeper"));
  }
  EXPECT_THAT(error_of(repeated("{% if x %}", 300)), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of(std::string(2 << 20, 'x')), HasSubstr("bytes, at most"));
  EXPECT_EQ(rendered("{{ " + repeated("(", 150) + "1" + repeated(")", 150) + " }}"), "1");
}

// Macros that call each other through deep expressions: the stack is bounded by what both nest together.
TEST(Template, recursion_through_deep_expressions_is_bounded) {
  std::string deep = "m(n)";
  for (int i = 0; i < 90; ++i) deep = "(" + deep + " ~ '')";
  EXPECT_THAT(error_of("{% macro m(n) %}{{ " + deep + " }}{% endmacro %}{{ m(1) }}"), HasSubstr("levels"));
}

// Four hundred looks at what is not charged take a few thousand steps.
TEST(Template, what_looks_at_large_texts_is_charged_by_their_length) {
  TemplateLimits limits;
  limits.steps = 400'000;  // half of them make the texts
  const std::string big =
      "{% set a = 'x' * 1600000 %}{% set b = 'x' * 1600000 %}{% set t = namespace(n=0) %}"
      "{% for i in range(20) %}{% for j in range(20) %}";
  for (const char* expression :
       {"a == b", "a < b", "a is eq(b)", "[a] == [b]", "a in [b]", "{a: 1}[b] is defined", "[b].count(a)",
        "[a, b]|max", "[a, b]|sort(case_sensitive=true)", "[a, b]|unique(case_sensitive=true)|list",
        "a|length", "a is lower", "a|trim|length", "a|default(b)|count", "a.startswith(b)", "{a: 1}.get(b)",
        "a|int", "a|title"})
    EXPECT_THAT(error_of(big + "{% if " + expression + " %}{% endif %}{% endfor %}{% endfor %}", {}, limits),
                HasSubstr("steps"))
        << expression;
}

TEST(Template, splitting_and_reading_numbers_take_linear_time) {
  EXPECT_EQ(rendered("{{ ('a ' * 500000).rsplit()|length }} {{ 'a b\u00a0c'.rsplit(none, 1)|tojson }}"),
            "500000 [\"a b\", \"c\"]");
  EXPECT_EQ(rendered("{{ ('1_' * 8000000)|int(7) }}"), "7");
}

TEST(Template, many_names_cost_what_looking_them_up_takes) {
  std::string source;
  for (int i = 0; i < 20'000; ++i) source += "{% set n" + std::to_string(i) + " = 1 %}";
  source += "{% for i in range(100000) %}{% for j in range(100) %}{{ n19999 }}{% endfor %}{% endfor %}";
  EXPECT_THAT(error_of(source), HasSubstr("steps"));
}

TEST(Template, cycles_of_namespaces_are_freed) {
  EXPECT_EQ(
      rendered(
          "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a.b.a is defined }}"),
      "True");
}

TEST(Template, the_fuzz_target_swallows_template_errors_only) {
  for (const char* source :
       {"", "{{", "{% for m in messages %}{{ m.content }}{% endfor %}", "{{ strftime_now('%Y') }}",
        "{{ messages|tojson(indent=2) }}", "\xff\xfe", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"})
    EXPECT_NO_THROW(fuzz_template(source));
}

TEST(PythonText, numbers_print_as_in_python) {
  EXPECT_EQ(jinja::repr(0.1), "0.1");
  EXPECT_EQ(jinja::repr(1e16), "1e+16");
  EXPECT_EQ(jinja::repr(1e15), "1000000000000000.0");
  EXPECT_EQ(jinja::repr(-0.0), "-0.0");
  EXPECT_EQ(jinja::repr(5e-324), "5e-324");
  EXPECT_EQ(jinja::repr(1.5e-7), "1.5e-07");
}

}  // namespace
}  // namespace plimsoll
