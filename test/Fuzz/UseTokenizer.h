//===- UseTokenizer.h - Tokenizers of checkpoints ---------------*- C++ -*-===//

#ifndef QWEN_TEST_FUZZ_USETOKENIZER_H
#define QWEN_TEST_FUZZ_USETOKENIZER_H

#include "Fuzz.h"

#include "qwen/Import/Checkpoint/CheckpointTokenizer.h"

#include <functional>

namespace qwen::fuzz {

using ReadTokenizerFn = std::function<std::optional<CheckpointTokenizer>()>;

/// Builds the tokenizer that `read` gives, and where there is one looks whether
/// the runtime takes it and gets its tokens back. `inputBytes` is the size of
/// its files.
void buildAndUse(const ReadTokenizerFn &read, size_t inputBytes);

} // namespace qwen::fuzz

#endif // QWEN_TEST_FUZZ_USETOKENIZER_H
