//===- ChatTemplateFuzz.cpp - Chat templates ----------------------------===//

#include "Fuzz.h"

#include "jinja/ChatTemplate.h"

#include <nlohmann/json.hpp>

#include <optional>

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const auto context = nlohmann::ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": "2 + 2? \u00e9"},
      {"role": "assistant", "content": "<think>\nx\n</think>\n\n4",
       "tool_calls": [{"type": "function", "function":
         {"name": "f", "arguments": {"a": 1, "b": [true, null, 1.5]}}}]},
      {"role": "tool", "content": "4"}],
    "tools": [{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "properties": {}}}}],
    "add_generation_prompt": true, "enable_thinking": false, "n": 3})");
  std::optional<ChatTemplate> parsed;
  // A node of the tree takes more memory than four times its source. Sources of
  // at most 4 KiB (CMakeLists.txt) still stay within the MiB.
  if (!fuzz::parses(size, [&] {
        parsed = ChatTemplate::parse(fuzz::asText(data, size));
      }))
    return 0;
  // A template is a program. The interpreter's limit of work also limits its
  // memory (docs/decisions/0002-chat-templates.md); -rss_limit_mb checks it.
  try {
    parsed->render(context, nlohmann::ordered_json::object());
  } catch (const Error &error) {
    fuzz::require(*error.what() != 0, "an error without a message");
  }
  return 0;
}
