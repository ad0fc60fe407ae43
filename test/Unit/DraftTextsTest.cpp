//===- DraftTextsTest.cpp - Drafts of lookup in the texts of bench --------===//
//
// How many drafts DraftPace chooses for real texts, against the best fixed
// number of drafts, with invented times of steps: measured ones move too much.
//
//===----------------------------------------------------------------------===//

#include "engine/DraftPace.h"
#include "engine/drafters/SuffixAutomaton.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

using namespace qwen;

namespace {
/// A prompt and its answer as numbers of words, which stand for tokens.
struct Conversation {
  std::vector<int32_t> tokens;
  size_t promptSize = 0;
};
} // namespace

static Conversation readConversation(const std::string &name) {
  std::ifstream file(QWEN_SOURCE_DIR "/bench/texts/" + name + ".json");
  const nlohmann::json text = nlohmann::json::parse(file);
  Conversation result;
  std::map<std::string, int32_t> numbers;
  for (const char *part : {"prompt", "answer"}) {
    result.promptSize = result.tokens.size();
    std::string word;
    for (const unsigned char c : text.at(part).get<std::string>() + " ") {
      if (std::isalnum(c)) {
        word += static_cast<char>(c);
        continue;
      }
      for (const std::string &each : {word, std::string(1, c)})
        if (!each.empty() && each != " ")
          result.tokens.push_back(
              numbers.try_emplace(each, numbers.size()).first->second);
      word.clear();
    }
  }
  return result;
}

static constexpr int64_t kMostDrafts = 7;

/// The tokens of an answer by the seconds of its steps. A step has `fixed`
/// drafts, or as many as `pace` chooses. `seconds` are those of 0, 1, ... rows.
static double speedOf(const Conversation &of, std::optional<int64_t> fixed,
                      const std::vector<double> &seconds, DraftPace &pace) {
  SuffixAutomaton known(of.tokens.size());
  DraftShares shares;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(1, 1.05);
  double time = 0;
  for (size_t size = of.promptSize; size < of.tokens.size();) {
    while (known.size() < size)
      known.append(of.tokens[known.size()]);
    const SuffixAutomaton::Match match = known.match();
    const auto left = static_cast<int64_t>(of.tokens.size() - size) - 1;
    DraftWish wish{&shares, static_cast<int64_t>(match.length),
                   match.length ? std::min(left, kMostDrafts) : 0};
    if (fixed)
      wish.count = std::min(*fixed, wish.most);
    else
      pace.choose({&wish, 1}, 1, kMostDrafts);
    int64_t right = 0;
    while (right < wish.count &&
           of.tokens[match.end + right] == of.tokens[size + right])
      ++right;
    if (!fixed && wish.count)
      pace.accept(shares, wish.strength, wish.count, right);
    const double step = seconds[static_cast<size_t>(wish.count) + 1];
    pace.record(wish.count + 1, step * noise(random));
    time += step;
    size += static_cast<size_t>(right) + 1;
  }
  return static_cast<double>(of.tokens.size() - of.promptSize) / time;
}

/// Seconds of a step of 0, 1, ... rows, as a Zen 3 (AVX2) and a Zen 4 (VNNI)
/// have them for Qwen2.5-0.5B in q4_0.
static const std::vector<double> kSeconds[] = {
    {0, 1, 1.15, 1.35, 1.65, 2.2, 2.5, 2.9, 3.3},
    {0, 1, 1.05, 1.08, 1.11, 1.3, 1.35, 1.42, 1.5}};

TEST(DraftTexts, ComeNearTheBestFixedNumber) {
  for (const char *name : {"chat", "code", "json", "prose", "summary"}) {
    const Conversation text = readConversation(name);
    ASSERT_GT(text.promptSize, 5U);
    for (const std::vector<double> &seconds : kSeconds) {
      DraftPace pace(kMostDrafts + 1, kMostDrafts);
      double best = 0;
      for (int64_t fixed = 0; fixed <= kMostDrafts; ++fixed)
        best = std::max(best, speedOf(text, fixed, seconds, pace));
      DraftPace anew(kMostDrafts + 1, kMostDrafts);
      // The second time, it has learned what a step takes.
      for (int run = 0; run < 2; ++run)
        EXPECT_GT(speedOf(text, {}, seconds, anew), 0.93 * best) << name;
    }
  }
}
