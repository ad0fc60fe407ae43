//===- VocabMergesFuzz.cpp - vocab.json, merges.txt and their kin -------===//

#include "UseTokenizer.h"

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const fuzz::Folder folder;
  static constexpr const char *kNames[] = {
      "vocab.json", "merges.txt", "tokenizer_config.json",
      "special_tokens_map.json", "added_tokens.json"};
  const auto parts =
      fuzz::splitParts(fuzz::asText(data, size), std::size(kNames));
  for (size_t i = 0; i < parts.size(); ++i)
    folder.write(kNames[i], i > 1 && parts[i].empty() ? "{}" : parts[i]);
  fuzz::buildAndUse([] { return readTokenizerFiles(folder.path()); }, size);
  return 0;
}
