// A chat template, rendered over a fixed conversation.
#include "fuzz/target.h"
#include "jinja/template.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::fuzz_template(plimsoll::text_of(data, size));
  return 0;
}
