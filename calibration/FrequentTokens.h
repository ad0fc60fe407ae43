//===- FrequentTokens.h - The tokens that texts have most -------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_FREQUENTTOKENS_H
#define QWEN_CALIBRATION_FREQUENTTOKENS_H

#include "qwen/Import/Tokenizer/TokenizerBlob.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace qwen {

/// The ids of `count` of the first `vocab` tokens, ascending. Added tokens
/// come first, since they end answers and open calls; then the most frequent
/// tokens of `texts`; then the least ids. A byte-level BPE numbers tokens in
/// the order of its merges, so the last rule stands for the text of its makers;
/// it is the only one without a tokenizer. `count` is at most `vocab`.
std::vector<int32_t>
frequentTokens(const std::optional<TokenizerImport> &tokenizer,
               std::span<const std::string_view> texts, int64_t vocab,
               int64_t count);

} // namespace qwen

#endif // QWEN_CALIBRATION_FREQUENTTOKENS_H
