//===- TokenizerJsonFuzz.cpp - tokenizer.json ---------------------------===//

#include "UseTokenizer.h"

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const fuzz::Folder folder;
  folder.write("tokenizer.json", fuzz::asText(data, size));
  fuzz::buildAndUse([] { return readTokenizerFiles(folder.path()); }, size);
  return 0;
}
