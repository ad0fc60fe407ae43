//===- GrammarTexts.h - Which texts grammars accept -------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_GRAMMARTEXTS_H
#define QWEN_TEST_UNIT_GRAMMARTEXTS_H

#include "StoriesTokenizer.h"

#include "grammar/Grammar.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>

#include <array>

namespace qwen::test {

inline int32_t tokenOf(const char *text) {
  return storiesTokenizer().findAddedToken(text).value();
}

/// The token that ends answers.
inline int32_t endToken() { return tokenOf("<|endoftext|>"); }

inline const GrammarCompiler &compiler() {
  static const auto made =
      makeGrammarCompiler(storiesTokenizer(), std::array{endToken()});
  return *made;
}

/// The token of one byte.
inline int32_t byteToken(char byte) {
  static const std::vector<int32_t> byByte = [] {
    std::vector<int32_t> ids(256, -1);
    for (int32_t id = 0; id < storiesTokenizer().vocabSize(); ++id)
      if (const std::string_view bytes = storiesTokenizer().tokenBytes(id);
          bytes.size() == 1)
        ids[static_cast<uint8_t>(bytes[0])] = id;
    return ids;
  }();
  return byByte[static_cast<uint8_t>(byte)];
}

/// Why a text is no grammar, or "no error".
inline std::string errorOf(GrammarKind kind, const std::string &text) {
  try {
    compiler().compile({kind, text});
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

inline bool allows(std::span<const uint32_t> words, int32_t id) {
  return words[static_cast<size_t>(id) / 32] >> (id % 32) & 1;
}

/// Whether a grammar accepts a text that is divided so: each token may come,
/// and at the end the answer may end. A state is done if nothing else may.
inline bool accepts(const Grammar &grammar, std::span<const int32_t> ids) {
  const auto state = grammar.start();
  for (const int32_t id : ids) {
    if (state->isDone() || !allows(state->allowed(), id))
      return false;
    state->accept(id);
  }
  if (state->isDone())
    return true;
  const bool mayEnd = allows(state->allowed(), endToken());
  if (mayEnd) {
    state->accept(endToken());
    EXPECT_TRUE(state->isDone());
  }
  return mayEnd;
}

/// The same of a text, as the tokenizer divides it and by bytes.
inline bool accepts(const Grammar &grammar, const std::string &text) {
  std::vector<int32_t> bytes;
  for (const char byte : text)
    bytes.push_back(byteToken(byte));
  const bool whole = accepts(grammar, storiesTokenizer().encode(text));
  EXPECT_EQ(accepts(grammar, bytes), whole) << text;
  return whole;
}

class GrammarTest : public testing::Test {
protected:
  void SetUp() override {
    if (!hasGrammars())
      GTEST_SKIP() << "built without llguidance";
  }
};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_GRAMMARTEXTS_H
