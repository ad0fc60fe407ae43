//===- Messages.cpp - The messages of a chat ------------------------------===//

#include "server/Messages.h"

#include "server/ApiError.h"

#include "qwen/ABI/Text.h"

#include <algorithm>
#include <array>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;

/// The text of a message's content: a string, or parts of type "text".
static std::string contentText(J content, const std::string &name) {
  if (content.is_string())
    return content;
  if (!content.is_array())
    throw ApiError(400, name + " must be a string or an array of text parts",
                   name);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    J part = content[i];
    if (!part.is_object() || part.value("type", ordered_json()) != "text" ||
        !part.contains("text") || !part["text"].is_string())
      throw ApiError(400,
                     name + "[" + std::to_string(i) +
                         "] must be {\"type\": \"text\", \"text\": ...}: the "
                         "model reads text only",
                     name);
    text += part["text"].get_ref<const std::string &>();
  }
  return text;
}

/// A message as the chat template reads it.
static ordered_json messageOf(J value, const std::string &name,
                              bool ignoreUnknown) {
  constexpr std::array kStrings = {"name", "reasoning_content"};
  constexpr std::array kIgnored = {"refusal", "annotations", "audio", "id"};
  if (!value.is_object() || !value.contains("role") ||
      !value["role"].is_string())
    throw ApiError(400, name + " must be an object with a role", name);
  ordered_json message = {{"role", value["role"]}, {"content", ""}};
  for (const auto &[key, member] : value.items()) {
    const std::string inner = name + "." + printable(key);
    if (key == "role" || member.is_null() || std::ranges::count(kIgnored, key))
      continue;
    if (key == "content") {
      message["content"] = contentText(member, inner);
    } else if (std::ranges::count(kStrings, key) || key == "reasoning") {
      if (!member.is_string())
        throw ApiError(400, inner + " must be a string", inner);
      message[key == "reasoning" ? "reasoning_content" : key] = member;
    } else if (!ignoreUnknown) {
      throw ApiError(400, "unknown parameter " + inner, inner);
    }
  }
  return message;
}

ordered_json server::messagesOf(J value, const std::string &name,
                                bool ignoreUnknown) {
  if (!value.is_array() || value.empty())
    throw ApiError(400, name + " must be an array of messages, not empty",
                   name);
  ordered_json messages = ordered_json::array();
  for (size_t i = 0; i < value.size(); ++i)
    messages.push_back(messageOf(value[i], name + "[" + std::to_string(i) + "]",
                                 ignoreUnknown));
  return messages;
}
