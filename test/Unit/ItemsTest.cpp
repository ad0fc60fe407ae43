//===- ItemsTest.cpp - The items of answers -------------------------------===//

#include "server/protocols/openai/Fold.h"
#include "text/CallParser.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::server;

namespace {

/// The events of a text with calls of f in Hermes' form, and their end.
AnswerEvents eventsOf(std::string_view text, bool isReasoning = false) {
  CallParser parser({.format = findCallFormat("hermes"),
                     .tools = std::make_shared<Tools>(Tools{{.name = "f"}})});
  AnswerEvents events;
  if (isReasoning)
    parser.push(AnswerEventKind::Reasoning, true, "Hm.", events);
  for (const char &byte : text)
    parser.push(AnswerEventKind::Text, false, {&byte, 1}, events);
  parser.finish(false, events);
  events.push_back({AnswerEventKind::End});
  return events;
}

/// A delta for each event, with a token for each.
std::vector<Delta> deltasOf(const AnswerEvents &events) {
  ItemList items;
  std::vector<Delta> deltas;
  for (const AnswerEvent &event : events) {
    deltas.push_back({.choice = 0});
    items.add(event, {{.id = static_cast<int32_t>(deltas.size())}},
              deltas.back());
  }
  return deltas;
}

Delta joined(std::vector<Delta> deltas) {
  Delta all{.choice = 0};
  for (Delta &delta : deltas)
    all.add(std::move(delta));
  return all;
}

/// An item as a line: its kind, the name of its tool and its text. "..." stands
/// behind one that is not whole.
std::vector<std::string> linesOf(const Delta &answer) {
  std::vector<std::string> lines;
  for (const ItemDelta &item : answer.items) {
    EXPECT_EQ(item.item, lines.size());
    EXPECT_EQ(item.id.empty(), item.kind != ItemKind::Call);
    const char *const kinds[] = {"text ", "reasoning ", "call "};
    lines.push_back(kinds[static_cast<size_t>(item.kind)] + item.name +
                    item.text + (item.isWhole ? "" : "..."));
  }
  return lines;
}

using Lines = std::vector<std::string>;

const std::string kCall = "<tool_call>\n{\"name\": \"f\", \"arguments\": "
                          "{\"a\": 1}}\n</tool_call>";

TEST(ItemsTest, TextBehindACallIsAnotherItem) {
  const Delta answer =
      joined(deltasOf(eventsOf("Before.\n" + kCall + "\nBehind.\n" + kCall)));
  EXPECT_EQ(linesOf(answer), (Lines{"text Before.", "call f{\"a\": 1}",
                                    "text \nBehind.", "call f{\"a\": 1}"}));
  EXPECT_NE(answer.items[1].id, answer.items[3].id);
}

TEST(ItemsTest, AnItemIsWholeWhenItEnds) {
  EXPECT_EQ(linesOf(joined(deltasOf(eventsOf("Yes.", true)))),
            (Lines{"reasoning Hm.", "text Yes."}));
  EXPECT_EQ(linesOf(joined(deltasOf(eventsOf(kCall + kCall)))),
            (Lines{"call f{\"a\": 1}", "call f{\"a\": 1}"}));
  // Calls that are cut, and one whose arguments are no JSON.
  EXPECT_EQ(linesOf(joined(deltasOf(eventsOf("I " + kCall.substr(0, 43))))),
            (Lines{"text I ", "call f{\"a\"..."}));
  const Delta broken = joined(deltasOf(eventsOf(
      "<tool_call>\n{\"name\": \"f\", \"arguments\": ]}\n</tool_call>Yes.")));
  ASSERT_EQ(broken.items.size(), 2U);
  EXPECT_FALSE(broken.items[0].isWhole);
  EXPECT_TRUE(broken.items[1].isWhole);
  // A delta tells the end of an item as soon as it is known.
  const std::vector<Delta> deltas = deltasOf(eventsOf("I" + kCall));
  ASSERT_GE(deltas.size(), 4U);
  ASSERT_EQ(deltas[1].items.size(), 2U);
  EXPECT_TRUE(deltas[1].items[0].isWhole && deltas[1].items[0].item == 0);
  EXPECT_TRUE(deltas.end()[-2].items[0].isWhole);
}

TEST(ItemsTest, ATokenBelongsToOneItem) {
  const AnswerEvents events = eventsOf("I look.\n" + kCall + "\nBehind.");
  const Delta answer = joined(deltasOf(events));
  int32_t id = 0;
  for (const ItemDelta &item : answer.items)
    for (const TokenRecord &token : item.tokens)
      EXPECT_EQ(token.id, ++id);
  // Those of the end belong to none.
  ASSERT_EQ(answer.tokens.size(), 1U);
  EXPECT_EQ(answer.tokens[0].id, ++id);
  EXPECT_EQ(id, std::ssize(events));
}

TEST(FoldTest, JoinsItemsByKind) {
  std::vector<Delta> deltas =
      deltasOf(eventsOf("Before.\n" + kCall + "\nBehind.\n" + kCall, true));
  Delta all = joined(deltas);
  const openai::Folded whole = openai::Fold().take(all);
  EXPECT_EQ(whole.reasoning, "Hm.");
  EXPECT_EQ(whole.text, "Before.\nBehind.");
  ASSERT_EQ(whole.calls.size(), 2U);
  EXPECT_EQ(whole.calls[1].index, 1U);
  EXPECT_TRUE(whole.calls[1].id.starts_with("call_"));
  EXPECT_EQ(whole.calls[1].arguments, "{\"a\": 1}");
  // The parts of a stream have the same, and no part tells an end alone.
  openai::Fold fold;
  openai::Folded joinedParts;
  for (Delta &delta : deltas) {
    const bool isEnd = delta.items.empty() ||
                       (delta.items.size() == 1 && delta.items[0].isWhole);
    const openai::Folded part = fold.take(delta);
    EXPECT_EQ(part.hasText(), !isEnd);
    joinedParts.text += part.text;
    joinedParts.reasoning += part.reasoning;
    for (const openai::CallPart &call : part.calls) {
      if (!call.id.empty())
        joinedParts.calls.push_back(call);
      else
        joinedParts.calls.at(call.index).arguments += call.arguments;
    }
    joinedParts.tokens.insert(joinedParts.tokens.end(), part.tokens.begin(),
                              part.tokens.end());
  }
  EXPECT_EQ(joinedParts.text, whole.text);
  EXPECT_EQ(joinedParts.reasoning, whole.reasoning);
  ASSERT_EQ(joinedParts.calls.size(), whole.calls.size());
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    EXPECT_EQ(joinedParts.calls[i].id, whole.calls[i].id);
    EXPECT_EQ(joinedParts.calls[i].arguments, whole.calls[i].arguments);
  }
  EXPECT_EQ(joinedParts.tokens.size(), whole.tokens.size());
}

TEST(FoldTest, HasTheWordsOfOpenAi) {
  const auto words = [](Delta delta) {
    return openai::finishReason(delta).dump() + " " +
           openai::stopReason(delta).dump();
  };
  EXPECT_EQ(words({.choice = 0}), "null null");
  EXPECT_EQ(words({.choice = 0, .finish = Finish::Stop}), "\"stop\" null");
  EXPECT_EQ(words({.choice = 0, .finish = Finish::Stop, .stopToken = 7}),
            "\"stop\" 7");
  EXPECT_EQ(
      words({.choice = 0, .finish = Finish::StopString, .stopString = "a"}),
      "\"stop\" \"a\"");
  EXPECT_EQ(words({.choice = 0, .finish = Finish::Length}), "\"length\" null");
  EXPECT_EQ(words({.choice = 0, .finish = Finish::Calls, .stopString = "a"}),
            "\"tool_calls\" \"a\"");
}

} // namespace
