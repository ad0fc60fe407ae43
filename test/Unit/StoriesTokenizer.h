//===- StoriesTokenizer.h - The tokenizer of models/stories -----*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_STORIESTOKENIZER_H
#define QWEN_TEST_UNIT_STORIESTOKENIZER_H

#include "qwen/Import/Tokenizer/TokenizerBlob.h"
#include "text/Tokenizer.h"

namespace qwen::test {

inline const Tokenizer &storiesTokenizer() {
  static const TokenizerImport import =
      buildTokenizer(*readTokenizerFiles(QWEN_SOURCE_DIR "/models/stories"));
  static const Tokenizer tokenizer = Tokenizer::fromBlob(import.blob);
  return tokenizer;
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_STORIESTOKENIZER_H
