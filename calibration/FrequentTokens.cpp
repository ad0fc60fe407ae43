//===- FrequentTokens.cpp - The tokens that texts have most ---------------===//

#include "calibration/FrequentTokens.h"

#include "text/Tokenizer.h"

#include <algorithm>
#include <numeric>
#include <utility>

using namespace qwen;

/// How often each token stands in the texts. Added tokens count most.
static std::vector<int64_t> countTokens(const TokenizerImport &tokenizer,
                                        std::span<const std::string_view> texts,
                                        int64_t vocab) {
  const Tokenizer encoder = Tokenizer::fromBlob(tokenizer.blob);
  std::vector<int64_t> counts(static_cast<size_t>(vocab));
  const auto countOf = [&](auto id) -> int64_t * {
    return static_cast<int64_t>(id) < vocab ? &counts[static_cast<size_t>(id)]
                                            : nullptr;
  };
  for (std::string_view text : texts)
    for (int32_t id : encoder.encode(text))
      if (int64_t *const count = countOf(id))
        ++*count;
  for (const AddedToken &token : encoder.addedTokens())
    if (int64_t *const count = countOf(token.id))
      *count = INT64_MAX;
  return counts;
}

std::vector<int32_t>
qwen::frequentTokens(const std::optional<TokenizerImport> &tokenizer,
                     std::span<const std::string_view> texts, int64_t vocab,
                     int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(vocab));
  std::iota(ids.begin(), ids.end(), 0);
  if (tokenizer) {
    const std::vector<int64_t> counts = countTokens(*tokenizer, texts, vocab);
    std::ranges::sort(ids, {}, [&](int32_t id) {
      return std::pair(-counts[static_cast<size_t>(id)], id);
    });
  }
  ids.resize(static_cast<size_t>(count));
  std::ranges::sort(ids);
  return ids;
}
