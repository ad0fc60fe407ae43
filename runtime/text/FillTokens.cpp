//===- FillTokens.cpp - What stands between two texts ---------------------===//

#include "text/FillTokens.h"

using namespace qwen;

/// A token behind the middle means that it has ended.
static constexpr std::string_view kEnds[] = {
    "<|fim_pad|>",       FillTokens::kRepository, FillTokens::kFile,
    FillTokens::kPrefix, FillTokens::kSuffix,     FillTokens::kMiddle};

std::optional<FillTokens> FillTokens::of(const Tokenizer &tokenizer) {
  const auto prefixToken = tokenizer.findAddedToken(kPrefix);
  const auto suffixToken = tokenizer.findAddedToken(kSuffix);
  const auto middleToken = tokenizer.findAddedToken(kMiddle);
  if (!prefixToken || !suffixToken || !middleToken)
    return std::nullopt;
  FillTokens tokens = {*prefixToken, *suffixToken, *middleToken, {}};
  for (const std::string_view end : kEnds)
    if (const auto id = tokenizer.findAddedToken(end))
      tokens.ends.push_back(*id);
  return tokens;
}

std::vector<int32_t> qwen::fillPrompt(const FillTokens &tokens,
                                      std::span<const int32_t> before,
                                      std::span<const int32_t> behind) {
  std::vector<int32_t> prompt = {tokens.prefix};
  prompt.insert(prompt.end(), before.begin(), before.end());
  prompt.push_back(tokens.suffix);
  prompt.insert(prompt.end(), behind.begin(), behind.end());
  prompt.push_back(tokens.middle);
  return prompt;
}
