//===- TokenizerFolder.h - Tokenizers from files ----------------*- C++ -*-===//

#ifndef QWEN_TEST_FUZZ_TOKENIZERFOLDER_H
#define QWEN_TEST_FUZZ_TOKENIZERFOLDER_H

#include "Fuzz.h"

namespace qwen::fuzz {

/// Builds the tokenizer of the folder, and where there is one looks whether
/// the runtime takes it and gets its tokens back. `inputBytes` is the size of
/// its files.
void buildAndUse(const Folder &folder, size_t inputBytes);

} // namespace qwen::fuzz

#endif // QWEN_TEST_FUZZ_TOKENIZERFOLDER_H
