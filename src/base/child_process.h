// Runs another program to its end.
#pragma once

#include <string>
#include <vector>

namespace plimsoll {

struct ChildAnswer {
  int code = -1;       // exit code; 128 and the signal that ended it; 127: there is no such program
  bool late = false;   // ended by this process, as it had not ended by itself in time
  std::string output;  // what it wrote to standard output
  std::string errors;  // and to standard error, where that is kept
};

enum class ChildErrors : uint8_t { shown, dropped, kept };  // on this process's standard error

// `words`: the program, looked up in PATH, and its arguments; `input` is what it reads. `most_seconds`: then
// it is killed; 0: it may take as long as it likes. Throws StoppedError where the system starts no more
// processes.
ChildAnswer run_child(const std::vector<std::string>& words, ChildErrors errors,
                      const std::string& input = "", double most_seconds = 0);

}  // namespace plimsoll
