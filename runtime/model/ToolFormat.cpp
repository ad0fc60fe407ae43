//===- ToolFormat.cpp - How a chat template writes calls ------------------===//

#include "model/ToolFormat.h"

#include "text/CallParser.h"
#include "text/Unicode.h"

#include "qwen/Support/Error.h"

#include <algorithm>

using namespace qwen;
using nlohmann::ordered_json;

using J = const ordered_json &;

static constexpr const char *kTool = "probe_tool";
/// Arguments that no format writes in another way.
static ordered_json probeArguments() { return {{"probe_key", "probe value"}}; }

/// Whether a format reads this one call in a text.
static bool reads(const CallFormat &format, std::string_view text) {
  CallParser parser({&format});
  AnswerEvents events;
  parser.push(AnswerEventKind::Text, false, text, events);
  parser.finish(false, events);
  std::string name, arguments;
  for (const AnswerEvent &event : events) {
    if (event.kind == AnswerEventKind::ToolCallBegin)
      name += event.text;
    if (event.kind == AnswerEventKind::ToolCallArguments)
      arguments += event.text;
  }
  return parser.calls() == 1 && name == kTool &&
         ordered_json::parse(arguments, nullptr, false) == probeArguments();
}

const CallFormat &qwen::findToolFormat(const ChatFormat &format,
                                       std::string_view name) {
  const ordered_json function = {
      {"name", kTool},
      {"description", "A probe"},
      {"parameters",
       {{"type", "object"},
        {"properties", {{"probe_key", {{"type", "string"}}}}}}}};
  const ordered_json call = {
      {"id", "call_0"},
      {"type", "function"},
      {"function", {{"name", kTool}, {"arguments", probeArguments()}}}};
  ordered_json variables = {
      {"messages", {{{"role", "user"}, {"content", "Question"}}}},
      {"tools", {{{"type", "function"}, {"function", function}}}},
      {"add_generation_prompt", false}};
  const std::string question = format.render(variables).bytes();
  if (question.find(kTool) == std::string::npos)
    throw Error("the chat template ignores tools, so that the model cannot "
                "call them");
  if (const CallFormat *const named = findCallFormat(name))
    return *named;
  variables["messages"].push_back(
      {{"role", "assistant"},
       {"content", ""},
       {"tool_calls", ordered_json::array({call})}});
  const std::string answer = format.render(variables).bytes();
  const auto begin = std::ranges::mismatch(question, answer).in2;
  const std::string_view added(begin, answer.end());
  const std::span<const CallFormat> formats = callFormats();
  const auto found = std::ranges::find_if(
      formats, [&](const CallFormat &each) { return reads(each, added); });
  if (found == formats.end())
    throw Error("the chat template writes calls of tools in a format that is "
                "not known; known are " +
                callFormatNames());
  return *found;
}

Tools qwen::toolsOf(J array, const std::string &name) {
  constexpr size_t kMostName = 256;
  if (!array.is_array())
    throw Error(name + " must be an array of functions");
  Tools tools;
  for (J each : array) {
    const std::string element = name + "[" + std::to_string(tools.size()) + "]";
    if (!each.is_object() || each.value("type", ordered_json()) != "function" ||
        !each.contains("function") || !each["function"].is_object())
      throw Error(element + " must be {\"type\": \"function\", \"function\": "
                            "{...}}");
    J function = each["function"];
    const auto found = function.find("name");
    if (found == function.end() || !found->is_string() ||
        found->get_ref<const std::string &>().empty() ||
        countCodePoints(found->get_ref<const std::string &>()) > kMostName)
      throw Error(element + ".function.name must be a string of 1 to " +
                  std::to_string(kMostName) + " characters");
    Tool tool{.name = *found,
              .isStrict = function.value("strict", ordered_json()) == true};
    if (const auto schema = function.find("parameters");
        schema != function.end() && !schema->is_null()) {
      if (!schema->is_object())
        throw Error(element + ".function.parameters must be an object");
      tool.parameters = *schema;
    }
    tools.push_back(std::move(tool));
  }
  return tools;
}
