//===- UseTokenizer.cpp - Tokenizers of checkpoints -----------------------===//

#include "UseTokenizer.h"

#include "text/Tokenizer.h"

#include "qwen/ABI/TokenizerFormat.h"
#include "qwen/Import/Tokenizer/TokenizerBlob.h"

#include <cstring>

using namespace qwen;

void qwen::fuzz::buildAndUse(const ReadTokenizerFn &read, size_t inputBytes) {
  std::optional<TokenizerImport> import;
  const bool parsed = parses(inputBytes, [&] {
    if (auto found = read())
      import = buildTokenizer(std::move(*found));
  });
  if (!parsed || !import)
    return;
  // The runtime must accept every blob of the compiler, without an Error.
  const Tokenizer tokenizer = Tokenizer::fromBlob(import->blob);
  require(static_cast<uint32_t>(tokenizer.vocabSize()) == import->vocabSize,
          "the runtime reads another number of tokens");
  const std::string text = "Hello, it's  12\n<|im_end|>";
  tokenizer.encode(text);
  TokenizerHeader header;
  std::memcpy(&header, import->blob.data(), sizeof(header));
  // The unknown token may be longer than the byte that becomes it.
  require(tokenizer.decode(tokenizer.encode("ab c")).size() <= 4 ||
              (header.flags & TokenizerHasUnknown),
          "a text grows");
}
