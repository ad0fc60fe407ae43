//===- ChatMessages.cpp - The messages of a chat --------------------------===//

#include "server/protocols/openai/ChatMessages.h"

#include "server/Parameters.h"
#include "server/http/ApiError.h"
#include "server/protocols/openai/ToolParameters.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;

namespace {

/// A role of messages.
struct Role {
  std::string_view name;
  /// The role that the chat template reads.
  const char *written;
  bool needsContent;
};

/// A member of a message besides its role and content.
struct Member {
  enum Kind : uint8_t {
    /// A string for the chat template.
    Text,
    /// Accepted without effect.
    Ignored,
    /// Calls of tools.
    Calls,
    /// OpenAI's older form of one call.
    FunctionCall,
  };
  std::string_view name;
  Kind kind;
  /// What the chat template calls it.
  const char *written = "";
};

} // namespace

static constexpr std::array kRoles = std::to_array<Role>({
    {"system", "system", true},
    // OpenAI's newer word. Templates would leave out its message.
    {"developer", "system", true},
    {"user", "user", true},
    {"assistant", "assistant", false},
    {"tool", "tool", true},
    // The older form of a tool's message, with the tool's name.
    {"function", "tool", true},
});

static constexpr std::array kMembers = std::to_array<Member>({
    {"name", Member::Text, "name"},
    {"reasoning_content", Member::Text, "reasoning_content"},
    {"reasoning", Member::Text, "reasoning_content"},
    {"refusal", Member::Ignored},
    {"annotations", Member::Ignored},
    {"audio", Member::Ignored},
    {"id", Member::Ignored},
    // What clients add to the messages that they got and send back: the parsed
    // content, and the fields of litellm and of other providers.
    {"parsed", Member::Ignored},
    {"provider_specific_fields", Member::Ignored},
    {"reasoning_details", Member::Ignored},
    {"thinking_blocks", Member::Ignored},
    {"cache_control", Member::Ignored},
    {"extra_content", Member::Ignored},
    {"tool_calls", Member::Calls, "tool_calls"},
    {"tool_call_id", Member::Text, "tool_call_id"},
    {"function_call", Member::FunctionCall, "tool_calls"},
});

/// The text of a message's content: a string, or parts of type "text".
static std::string contentText(J content, const std::string &name) {
  if (content.is_string())
    return content;
  if (!content.is_array() || content.empty())
    throw ApiError(
        400, name + " must be a string or an array of text parts, not empty",
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

static const Role &roleOf(J value, const std::string &name) {
  if (!value.is_object() || !value.contains("role") ||
      !value["role"].is_string())
    throw ApiError(400, name + " must be an object with a role", name);
  const auto &asked = value["role"].get_ref<const std::string &>();
  const auto *const found = std::ranges::find(kRoles, asked, &Role::name);
  if (found != kRoles.end())
    return *found;
  std::string list;
  for (const Role &role : kRoles)
    list += (list.empty() ? "" : ", ") + std::string(role.name);
  throw ApiError(
      400, name + ".role must be one of " + list + ", not " + quote(asked),
      name + ".role");
}

/// Puts a member of a request's message into the template's.
static void storeMember(const std::string &key, J value,
                        const std::string &name, bool ignoreUnknown,
                        ordered_json &to) {
  const auto *const found = std::ranges::find(kMembers, key, &Member::name);
  if (found != kMembers.end() && found->kind == Member::Ignored)
    return;
  if (found != kMembers.end() && found->kind == Member::Text) {
    if (!value.is_string())
      throw ApiError(400, name + " must be a string", name);
    to[found->written] = value;
    return;
  }
  if (found != kMembers.end() && found->kind == Member::Calls) {
    // Templates take an empty list for calls.
    if (ordered_json calls = toolCallsOf(value, name, ignoreUnknown);
        !calls.empty())
      to[found->written] = std::move(calls);
    return;
  }
  if (found != kMembers.end()) {
    to[found->written] = functionCallOf(value, name, ignoreUnknown);
    return;
  }
  if (!ignoreUnknown)
    throw unknownParameter(name);
}

/// A message as the chat template reads it.
static ordered_json messageOf(J value, const std::string &name,
                              bool ignoreUnknown) {
  const Role &role = roleOf(value, name);
  ordered_json message = {{"role", role.written}, {"content", ""}};
  bool hasContent = false;
  for (const auto &[key, member] : value.items()) {
    const std::string inner = name + "." + printable(key.substr(0, 200));
    if (key == "role" || member.is_null())
      continue;
    if (key == "content") {
      message["content"] = contentText(member, inner);
      hasContent = true;
    } else {
      storeMember(key, member, inner, ignoreUnknown, message);
    }
  }
  if (role.needsContent && !hasContent)
    throw ApiError(400, name + ".content is missing", name + ".content");
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

ordered_json server::messagesSchema(bool ignoreUnknown) {
  const ordered_json text = {{"type", "string"}};
  const ordered_json content = {
      {"anyOf",
       ordered_json::array(
           {text,
            {{"type", "array"},
             {"minItems", 1},
             {"items",
              {{"type", "object"},
               {"required", ordered_json::array({"type", "text"})},
               {"properties",
                {{"type", {{"const", "text"}}}, {"text", text}}}}}}})}};
  ordered_json members = ordered_json::object();
  for (const Member &member : kMembers) {
    ordered_json &schema = members[std::string(member.name)];
    if (member.kind == Member::Text)
      schema = orNull(text);
    else if (member.kind == Member::Calls)
      schema = orNull(toolCallsSchema(ignoreUnknown));
    else if (member.kind == Member::FunctionCall)
      schema = orNull(ordered_json(
          toolCallsSchema(ignoreUnknown)["items"]["properties"]["function"]));
    else
      schema = ordered_json::object();
  }
  ordered_json kinds = ordered_json::array();
  for (const bool needsContent : {true, false}) {
    ordered_json names = ordered_json::array();
    for (const Role &role : kRoles)
      if (role.needsContent == needsContent)
        names.push_back(role.name);
    ordered_json properties = {
        {"role", {{"enum", names}}},
        {"content", needsContent ? content : orNull(content)}};
    properties.update(members);
    ordered_json kind = {{"type", "object"},
                         {"required", ordered_json::array({"role"})},
                         {"properties", properties},
                         {"additionalProperties", ignoreUnknown}};
    if (needsContent)
      kind["required"].push_back("content");
    kinds.push_back(kind);
  }
  return {{"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", kinds}}}};
}
