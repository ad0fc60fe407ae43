//===- TurnsTest.cpp - The messages that a chat template takes ------------===//

#include "StoriesTokenizer.h"

#include "model/Turns.h"

#include <gtest/gtest.h>

#include <fstream>

using namespace qwen;
using namespace qwen::test;
using nlohmann::ordered_json;

namespace {

ChatFormat published(const std::string &name) {
  std::ifstream file(QWEN_SOURCE_DIR "/test/Inputs/tokenizer/templates/" +
                     name + ".jinja");
  return {std::string(std::istreambuf_iterator<char>(file), {}),
          storiesTokenizer()};
}

/// Messages of one letter a role: "s", "u" and "a", each with a content.
ordered_json
turns(std::initializer_list<std::pair<char, const char *>> messages) {
  ordered_json list = ordered_json::array();
  for (const auto &[role, content] : messages)
    list.push_back({{"role", role == 's'   ? "system"
                             : role == 'u' ? "user"
                                           : "assistant"},
                    {"content", content}});
  return list;
}

TEST(TurnsTest, TemplatesShowWhatTheyTake) {
  for (const auto &[name, laterSystem, noUser] :
       {std::tuple("Qwen-Qwen2.5-7B-Instruct", true, true),
        std::tuple("Qwen-Qwen3-0.6B", true, true),
        std::tuple("Qwen3-Coder", true, true),
        std::tuple("Qwen-QwQ-32B", true, true),
        // It refuses both.
        std::tuple("Qwen3.5-4B", false, false),
        // It writes the last system message at the front.
        std::tuple("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", false, true)}) {
    const TurnRules rules = turnRulesOf(published(name));
    EXPECT_EQ(rules.laterSystem, laterSystem) << name;
    EXPECT_EQ(rules.noUser, noUser) << name;
  }
}

TEST(TurnsTest, SystemMessagesAtTheFrontAreJoined) {
  for (bool laterSystem : {true, false})
    EXPECT_EQ(turnsFor({.laterSystem = laterSystem},
                       turns({{'s', "a"}, {'s', "b"}, {'u', "c"}})),
              turns({{'s', "a\n\nb"}, {'u', "c"}}));
}

TEST(TurnsTest, ALaterSystemMessageStaysWhereItStands) {
  const ordered_json messages = turns(
      {{'s', "a"}, {'u', "b"}, {'s', "c"}, {'s', "d"}, {'a', "e"}, {'s', ""}});
  EXPECT_EQ(turnsFor({}, messages), messages);
  EXPECT_EQ(turnsFor({.laterSystem = false}, messages),
            turns({{'s', "a"},
                   {'u', "b"},
                   {'u', "<system>\nc\n</system>"},
                   {'u', "<system>\nd\n</system>"},
                   {'a', "e"},
                   {'u', "<system>\n\n</system>"}}));
}

TEST(TurnsTest, ATemplateGetsTheUserThatItNeeds) {
  EXPECT_EQ(turnsFor({}, turns({{'s', "a"}, {'a', "b"}})),
            turns({{'s', "a"}, {'a', "b"}}));
  EXPECT_EQ(turnsFor({.noUser = false}, turns({{'s', "a"}, {'a', "b"}})),
            turns({{'s', "a"}, {'u', ""}, {'a', "b"}}));
  EXPECT_EQ(turnsFor({}, ordered_json::array()), turns({{'u', ""}}));
  // A later system message is one of the user then.
  EXPECT_EQ(turnsFor({.laterSystem = false, .noUser = false},
                     turns({{'a', "a"}, {'s', "b"}})),
            turns({{'a', "a"}, {'u', "<system>\nb\n</system>"}}));
}

// No order of roles is an error of a template that people use.
TEST(TurnsTest, EachTemplateTakesAllOrders) {
  for (const char *name : {"Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B",
                           "Qwen3-Coder", "Qwen-QwQ-32B", "Qwen3.5-4B",
                           "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"}) {
    const ChatFormat format = published(name);
    const TurnRules rules = turnRulesOf(format);
    constexpr int kLength = 4;
    for (int number = 0; number < 81; ++number) {
      ordered_json messages = ordered_json::array();
      for (int i = 0, rest = number; i < kLength; ++i, rest /= 3)
        messages.push_back({{"role", rest % 3 == 0   ? "system"
                                     : rest % 3 == 1 ? "user"
                                                     : "assistant"},
                            {"content", "text" + std::to_string(i)}});
      std::string text;
      EXPECT_NO_THROW(
          text =
              format.render({{"messages", turnsFor(rules, messages)}}).bytes())
          << name << messages;
      size_t at = 0;
      for (int i = 0; i < kLength; ++i)
        EXPECT_NE(at = text.find("text" + std::to_string(i), at),
                  std::string::npos)
            << name << messages << text;
    }
  }
}

} // namespace
