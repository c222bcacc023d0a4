// The names that templates may use: functions, methods, filters and tests. Any other name is refused when a
// template is read.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace plimsoll::jinja {

std::span<const std::string> function_names();
std::span<const std::string> method_names();
std::span<const std::string> filter_names();
std::span<const std::string> test_names();

bool is_function(std::string_view name);
bool is_method(std::string_view name);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

// "there is no filter 'trimm'; did you mean 'trim'?"
std::string unknown_name(std::string_view what, std::string_view name, std::span<const std::string> known);

}  // namespace plimsoll::jinja
