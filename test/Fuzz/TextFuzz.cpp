//===- TextFuzz.cpp - UTF-8, words and tokens ---------------------------===//

#include "Fuzz.h"

#include "text/Tokenizer.h"
#include "text/TokenizerWords.h"
#include "text/Unicode.h"

#include "qwen/Import/Tokenizer/TokenizerBlob.h"

using namespace qwen;

/// Pushes the text in pieces whose lengths its own bytes say.
static std::string throughStream(std::string_view text) {
  Utf8Stream stream;
  std::string result;
  while (!text.empty()) {
    const size_t size =
        std::min<size_t>(1 + (uint8_t(text[0]) & 3), text.size());
    const std::string piece = stream.push(text.substr(0, size));
    fuzz::require(isValidUtf8(piece), "a piece of a stream is no UTF-8");
    result += piece;
    text.remove_prefix(size);
  }
  return result + stream.finish();
}

/// What encoding takes a byte of text for its ids and its tables of words, and
/// for normalized copies: its own bound, not that of a parser.
static constexpr size_t kBytesPerByte = 256;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const TokenizerImport import =
      buildTokenizer(*readTokenizerFiles(QWEN_SOURCE_DIR "/models/stories"));
  static const Tokenizer tokenizer = Tokenizer::fromBlob(import.blob);
  const fuzz::MemoryLimit limit((size_t{1} << 20) + kBytesPerByte * size);
  const std::string_view text = fuzz::asText(data, size);

  const std::string valid = toValidUtf8(text);
  fuzz::require(isValidUtf8(valid), "repaired text is no UTF-8");
  fuzz::require(!isValidUtf8(text) || valid == text, "valid text is changed");
  fuzz::require(throughStream(text) == valid, "a stream gives other text");

  for (size_t begin = 0; begin < valid.size();) {
    const size_t end = wordEnd(valid, begin);
    fuzz::require(end > begin && end <= valid.size(), "a word has no end");
    begin = end;
  }

  const std::string normal = toNfc(valid);
  fuzz::require(toNfc(normal) == normal, "normalized text is not normal");
  fuzz::require(!isSurelyNfc(valid) || normal == valid,
                "text that is surely normal is not");

  const std::vector<int32_t> ids = tokenizer.encode(text, false);
  fuzz::require(tokenizer.decode(ids) == normal, "ids give other text");
  tokenizer.encode(text, true);
  return 0;
}
