//===- Turns.cpp - The messages that a chat template takes ----------------===//

#include "model/Turns.h"

#include "qwen/Support/Error.h"

#include <algorithm>

using namespace qwen;
using nlohmann::ordered_json;

using J = const ordered_json &;

static constexpr const char *kSystem = "system", *kUser = "user";

static ordered_json turn(const char *role, const std::string &content) {
  return {{"role", role}, {"content", content}};
}

/// The text of a conversation; empty if the template refuses it.
static std::string tryToRender(const ChatFormat &format,
                               const ordered_json::array_t &messages) {
  try {
    return format.render({{"messages", messages}}).bytes();
  } catch (const Error &) {
    return "";
  }
}

TurnRules qwen::turnRulesOf(const ChatFormat &format) {
  const std::string text = tryToRender(format, {turn(kUser, "first probe"),
                                                turn(kSystem, "second probe"),
                                                turn(kUser, "third probe")});
  const size_t second = text.find("second probe");
  return {.laterSystem = second != std::string::npos &&
                         text.find("first probe") < second &&
                         text.find("third probe", second) != std::string::npos,
          .noUser = !tryToRender(format, {turn(kSystem, "probe")}).empty()};
}

static bool isSystem(J message) { return message["role"] == kSystem; }
static bool isUser(J message) { return message["role"] == kUser; }

ordered_json qwen::turnsFor(const TurnRules &rules, J messages) {
  ordered_json turns = ordered_json::array();
  const auto later = std::ranges::find_if_not(messages, isSystem);
  for (auto each = messages.begin(); each != later; ++each)
    if (turns.empty())
      turns.push_back(*each);
    else
      turns[0]["content"].get_ref<std::string &>() +=
          "\n\n" + (*each)["content"].get_ref<const std::string &>();
  const size_t front = turns.size();
  for (auto each = later; each != messages.end(); ++each)
    if (isSystem(*each) && !rules.laterSystem)
      turns.push_back(
          turn(kUser, "<system>\n" +
                          (*each)["content"].get_ref<const std::string &>() +
                          "\n</system>"));
    else
      turns.push_back(*each);
  if (turns.empty() || (!rules.noUser && std::ranges::none_of(turns, isUser)))
    turns.insert(turns.begin() + static_cast<std::ptrdiff_t>(front),
                 turn(kUser, ""));
  return turns;
}
