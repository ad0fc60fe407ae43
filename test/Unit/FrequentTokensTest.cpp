//===- FrequentTokensTest.cpp - The tokens that texts have most -----------===//

#include "calibration/FrequentTokens.h"
#include "StoriesTokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace qwen;
using namespace qwen::test;

using Ids = std::vector<int32_t>;

TEST(FrequentTokens, AreTheFirstWithoutATokenizer) {
  EXPECT_EQ(frequentTokens({}, {}, 10, 4), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(frequentTokens({}, {}, 4, 4), (Ids{0, 1, 2, 3}));
}

TEST(FrequentTokens, AreAddedOnesAndThoseOfTheTexts) {
  const std::optional<TokenizerImport> import =
      buildTokenizer(*readTokenizerFiles(QWEN_SOURCE_DIR "/models/stories"));
  const Tokenizer &tokenizer = storiesTokenizer();
  const int64_t vocab = tokenizer.vocabSize();
  const auto added = static_cast<int64_t>(tokenizer.addedTokens().size());
  ASSERT_GT(added, 0);
  const std::string_view texts[] = {"the cat the cat the", " sat"};
  const Ids once = tokenizer.encode(texts[1]);
  const int32_t most = tokenizer.encode(" the")[0];

  const Ids few = frequentTokens(import, texts, vocab, added + 1);
  EXPECT_TRUE(std::ranges::is_sorted(few));
  for (const AddedToken &token : tokenizer.addedTokens())
    EXPECT_TRUE(std::ranges::count(few, static_cast<int32_t>(token.id)));
  EXPECT_TRUE(std::ranges::count(few, most));

  // Ids that no text has follow in their order.
  const Ids more = frequentTokens(import, texts, vocab, added + 40);
  EXPECT_EQ(std::ssize(more), added + 40);
  for (int32_t id : once)
    EXPECT_TRUE(std::ranges::count(more, id));
  EXPECT_EQ(more.front(), 0);
  EXPECT_EQ(std::ssize(frequentTokens(import, texts, vocab, vocab)), vocab);
  // Added tokens that the model lacks are none of its.
  EXPECT_EQ(frequentTokens(import, texts, 300, 300).back(), 299);
}
