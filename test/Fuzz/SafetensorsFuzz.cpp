//===- SafetensorsFuzz.cpp - Files of weights ---------------------------===//

#include "Fuzz.h"

#include "qwen/Import/Checkpoint/Safetensors.h"

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A copy, so that AddressSanitizer sees a read past the end.
  const std::vector<uint8_t> file = fuzz::copyOf(data, size);
  fuzz::parses(size, [&] {
    uint64_t total = 0;
    for (const StoredTensor &tensor : parseSafetensors(file, "d/f")) {
      fuzz::require(tensor.bytes.data() == file.data() + tensor.offset,
                    "bytes of a tensor are not at its offset");
      total += tensor.bytes.size();
      for (uint8_t byte : tensor.bytes)
        total += byte & 0;
    }
    fuzz::require(total <= size, "tensors are larger than the file");
  });
  return 0;
}
