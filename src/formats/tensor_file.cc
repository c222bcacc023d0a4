#include "formats/tensor_file.h"

#include "formats/gguf_checkpoint.h"
#include "formats/safetensors.h"

namespace plimsoll {

TensorFile::~TensorFile() = default;
SafetensorsFile::~SafetensorsFile() = default;
GgufCheckpoint::~GgufCheckpoint() = default;

}  // namespace plimsoll
