// Libraries that are opened while the program runs, where the machine has them. None is closed again: threads
// of theirs may run on.
#pragma once

#include <dlfcn.h>

#include <string>

namespace plimsoll {

// Null where it is not there or is not loaded; `why` is the system's reason then.
inline void* open_library(const std::string& name, std::string& why) {
  void* const opened = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened != nullptr) return opened;
  const char* const said = dlerror();
  why = said == nullptr ? name + ": is not loaded" : said;
  return nullptr;
}

// Looks up a function by its name and sets `function` to it, or to null. Returns false if the library has
// none.
template <class Function>
bool find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace plimsoll
