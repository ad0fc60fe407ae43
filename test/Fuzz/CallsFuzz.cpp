//===- CallsFuzz.cpp - Calls of tools in answers ------------------------===//
//
// The first byte is the format, and whether the reasoning has the text. Behind
// a byte 0x1e is the schema of the tool "f".
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "text/CallParser.h"
#include "text/Unicode.h"

#include "qwen/Support/Error.h"

#include <algorithm>

using namespace qwen;

namespace {
struct Found {
  /// The events, those of one kind in a row joined.
  AnswerEvents events;
  int64_t calls = 0;
  bool isBroken = false;
};
} // namespace

/// What a parser makes of a text that is cut at some places.
static Found parse(const CallOptions &options, bool isReasoning,
                   std::string_view text, size_t most) {
  CallParser parser(options);
  Found found;
  const auto add = [&](const AnswerEvents &events) {
    for (const AnswerEvent &event : events) {
      fuzz::require(isValidUtf8(event.text), "a text of an answer is no UTF-8");
      if (!found.events.empty() && found.events.back().kind == event.kind)
        found.events.back().text += event.text;
      else
        found.events.push_back({event.kind, event.text});
    }
  };
  while (!text.empty()) {
    // Pieces are whole characters.
    size_t size = std::min(most, text.size());
    while (size < text.size() && (text[size] & 0xC0) == 0x80)
      ++size;
    AnswerEvents events;
    parser.push(isReasoning ? AnswerEventKind::Reasoning
                            : AnswerEventKind::Text,
                isReasoning, text.substr(0, size), events);
    add(events);
    text.remove_prefix(size);
  }
  AnswerEvents events;
  parser.finish(isReasoning, events);
  add(events);
  found.calls = parser.calls();
  found.isBroken = parser.isBroken();
  return found;
}

/// Writes the grammar of a call, or refuses the schema.
static void writeGrammar(const CallFormat &format, const Tool &tool) {
  if (!tool.parameters.is_object())
    return;
  fuzz::require(!format.writeRules(tool, "call", true).empty(),
                "any arguments have no rule");
  try {
    fuzz::require(!format.writeRules(tool, "call", false).empty(),
                  "a call has no rule");
  } catch (const Error &error) {
    fuzz::require(error.what()[0] != 0, "an error without a message");
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  const std::string_view input = fuzz::asText(data + 1, size - 1);
  const size_t cut = input.find('\x1e');
  const std::string text = toValidUtf8(input.substr(0, cut));
  Tools tools = {{"f"}};
  if (cut != std::string_view::npos)
    tools[0].parameters =
        nlohmann::ordered_json::parse(input.substr(cut + 1), nullptr, false);
  writeGrammar(callFormats()[data[0] % callFormats().size()], tools[0]);
  const CallOptions options = {&callFormats()[data[0] % callFormats().size()],
                               std::make_shared<Tools>(std::move(tools))};
  const bool isReasoning = data[0] & 0x80;
  const Found whole = parse(options, isReasoning, text, text.size());
  for (const size_t most : {1, 2, 7}) {
    const Found parts = parse(options, isReasoning, text, most);
    fuzz::require(
        parts.calls == whole.calls && parts.isBroken == whole.isBroken &&
            std::ranges::equal(
                parts.events, whole.events,
                [](const AnswerEvent &left, const AnswerEvent &right) {
                  return left.kind == right.kind && left.text == right.text;
                }),
        "pieces change the calls of an answer");
  }
  std::string arguments;
  for (const AnswerEvent &event : whole.events) {
    if (event.kind == AnswerEventKind::ToolCallArguments)
      arguments = event.text;
    if (event.kind == AnswerEventKind::ToolCallEnd)
      fuzz::require(nlohmann::json::accept(arguments),
                    "the arguments of a whole call are no JSON");
  }
  return 0;
}
