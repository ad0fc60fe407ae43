//===- FillTokens.h - What stands between two texts -------------*- C++ -*-===//
//
// Models of code fill in the middle: their prompt has what stands before and
// behind it, between tokens of their own.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_FILLTOKENS_H
#define QWEN_RUNTIME_TEXT_FILLTOKENS_H

#include "text/Tokenizer.h"

namespace qwen {

/// The tokens around the parts of a prompt.
struct FillTokens {
  static constexpr std::string_view kPrefix = "<|fim_prefix|>",
                                    kSuffix = "<|fim_suffix|>",
                                    kMiddle = "<|fim_middle|>",
                                    kRepository = "<|repo_name|>",
                                    kFile = "<|file_sep|>";

  int32_t prefix, suffix, middle;
  /// Others of the vocabulary, which also end an answer.
  std::vector<int32_t> ends;

  /// Nothing if the vocabulary lacks one of the first three.
  static std::optional<FillTokens> of(const Tokenizer &tokenizer);
};

/// The prompt for what stands between two texts.
std::vector<int32_t> fillPrompt(const FillTokens &tokens,
                                std::span<const int32_t> before,
                                std::span<const int32_t> behind);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_FILLTOKENS_H
