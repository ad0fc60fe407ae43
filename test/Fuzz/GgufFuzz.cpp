//===- GgufFuzz.cpp - GGUF files ------------------------------------------===//

#include "UseTokenizer.h"

#include "qwen/Import/Checkpoint/Checkpoint.h"
#include "qwen/Import/Checkpoint/Gguf.h"

using namespace qwen;

static void parse(const std::vector<uint8_t> &file) {
  uint64_t total = 0;
  for (const StoredTensor &tensor : parseGguf(file, "d/f").tensors) {
    fuzz::require(tensor.bytes.data() == file.data() + tensor.offset,
                  "bytes of a tensor are not at its offset");
    total += tensor.bytes.size();
    for (uint8_t byte : tensor.bytes)
      total += byte & 0;
  }
  fuzz::require(total <= file.size(), "tensors are larger than the file");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A copy, so that AddressSanitizer sees a read past the end.
  const std::vector<uint8_t> file = fuzz::copyOf(data, size);
  if (!fuzz::parses(size, [&] { parse(file); }))
    return 0;

  static const fuzz::Folder folder;
  folder.write("m.gguf", fuzz::asText(data, size));
  std::unique_ptr<Checkpoint> checkpoint;
  fuzz::parses(size,
               [&] { checkpoint = openCheckpoint(folder.path() / "m.gguf"); });
  if (!checkpoint)
    return 0;
  // An output of each weight, so that AddressSanitizer sees a read elsewhere.
  std::vector<float> values;
  for (const auto &[name, entry] : checkpoint->weights().all()) {
    const WeightShape &shape = entry.source->shape();
    if (shape.k() > int64_t{1} << 20)
      continue;
    values.resize(static_cast<size_t>(shape.k()));
    entry.source->read(shape.outputs() - 1, 1, values.data());
  }
  fuzz::buildAndUse([&] { return checkpoint->readTokenizer(); }, size);
  return 0;
}
