//===- TiktokenFuzz.cpp - Qwen 1's qwen.tiktoken --------------------------===//

#include "UseTokenizer.h"

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const fuzz::Folder folder;
  folder.write("qwen.tiktoken", fuzz::asText(data, size));
  fuzz::buildAndUse([] { return readTokenizerFiles(folder.path()); }, size);
  return 0;
}
