// Messages for a command line that cannot be read, and checks of numbers with messages of their own.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>

namespace plimsoll {

// Makes the program name what is unknown or missing, the nearest name, and where to read more. Before
// commands are added: they inherit it.
void use_usage_text(CLI::App& app);

// A finite number that is not below `least`.
CLI::Validator at_least(int64_t least);
// A number of that range, which NaN is not.
CLI::Validator between(double least, double most);
// A number from 0 to 1.
CLI::Validator share();
// A finite number above 0.
CLI::Validator above_zero();

}  // namespace plimsoll
