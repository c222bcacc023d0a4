// A GGUF file of any bytes: its head read, and numbers of its tensors, from their start and from within a block.
#include <algorithm>
#include <vector>

#include "formats/gguf_file.h"
#include "fuzz/target.h"

using namespace plimsoll;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFile file;
  const std::string& path = file.holding(text_of(data, size));
  accepted([&] {
    const GgufFile opened = GgufFile::open(path);
    for (const auto& [name, tensor] : opened.tensors()) {
      const int64_t count = tensor.shape.elements();
      check_internal(gguf_bytes(tensor.type, tensor.shape) <= static_cast<int64_t>(size),
                     "a tensor has more bytes than its file");
      std::vector<float> numbers(static_cast<size_t>(std::min<int64_t>(count, 4096)));
      opened.read(tensor, 0, numbers);
      opened.read(tensor, count - static_cast<int64_t>(numbers.size()), numbers);
      if (count > 1) opened.read(tensor, 1, std::span(numbers).first(1));
    }
  });
  return 0;
}
