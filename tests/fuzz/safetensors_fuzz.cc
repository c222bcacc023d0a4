// A safetensors file of any bytes: opened, and every byte of its tensors read.
#include <algorithm>
#include <vector>

#include "formats/safetensors.h"
#include "fuzz/target.h"

using namespace plimsoll;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFile file;
  const std::string& path = file.holding(text_of(data, size));
  accepted([&] {
    const SafetensorsFile opened = SafetensorsFile::open(path);
    int64_t bytes = 0;
    for (const TensorEntry& tensor : opened.tensors()) {
      std::vector<std::byte> content(static_cast<size_t>(tensor.bytes));
      opened.read(tensor, 0, content);
      bytes += tensor.bytes;
      check_internal(opened.find(tensor.name) == &tensor, "a tensor is not found by its name");
    }
    check_internal(bytes <= static_cast<int64_t>(size), "tensors have more bytes than their file");
  });
  return 0;
}
