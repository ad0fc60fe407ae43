//===- TokenizerBlobFuzz.cpp - Compiled tokenizers ----------------------===//

#include "Fuzz.h"

#include "text/Tokenizer.h"

#include <optional>

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::vector<uint8_t> blob = fuzz::copyOf(data, size);
  std::optional<Tokenizer> tokenizer;
  if (!fuzz::parses(size, [&] { tokenizer = Tokenizer::fromBlob(blob); }))
    return 0;
  const auto text = "it's <|im_end|>  a\xcc\x81 \xff 12\r\n";
  for (bool allowSpecial : {false, true})
    for (int32_t id : tokenizer->encode(text, allowSpecial))
      fuzz::require(id >= 0 && id < tokenizer->vocabSize(),
                    "an id is no token");
  size_t bytes = 0;
  for (int32_t id = 0; id < tokenizer->vocabSize(); ++id) {
    bytes += tokenizer->tokenBytes(id).size();
    tokenizer->isSpecial(id);
  }
  fuzz::require(bytes <= size, "tokens are larger than the blob");
  tokenizer->findAddedToken("<|im_end|>");
  return 0;
}
