//===- Blocks.cpp - Messages of content blocks ----------------------------===//

#include "server/protocols/messages/Blocks.h"

#include "server/Conversation.h"
#include "server/http/ApiError.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <utility>

using namespace qwen;
using namespace qwen::server;
using namespace qwen::server::messages;
using nlohmann::ordered_json;

using J = const ordered_json &;

namespace {

/// What becomes of a block.
enum class BlockUse : uint8_t {
  /// Its member is text of the message.
  Text,
  /// Its member is reasoning of the message.
  Reasoning,
  Call,
  /// A message of its own, with the text of its content.
  Result,
  /// The texts of its content belong to the message.
  Content,
  /// Text if its source is.
  Document,
  /// Only an error names it: the model reads text.
  Refused,
  /// It has no meaning for the model.
  Ignored,
};

struct BlockType {
  std::string_view name;
  BlockUse use;
  /// The members that are strings, which it needs.
  std::string_view text = "", other = "";
};

/// Where a block stands, for errors and notes.
struct Place {
  const std::string &name;
  const ParameterLimits &limits;

  [[noreturn]] void fail(const std::string &needed) const {
    throw ApiError(400, name + " " + needed, name);
  }
};

/// Collects the parts of a message, and writes messages of a chat template.
class TurnWriter {
public:
  TurnWriter(ordered_json &to, std::string ofRole)
      : turns(to), role(std::move(ofRole)) {}

  void addText(const std::string &more);
  void addReasoning(const std::string &more) { reasoning += more; }
  void addCall(J block);
  void addResult(J block, const std::string &content);
  /// Writes the parts so far as a message, if there are any.
  void flush();
  /// Writes the last message, an empty one if there is none.
  void finish();

private:
  ordered_json &turns;
  const std::string role;
  std::string text, reasoning;
  ordered_json calls = ordered_json::array();
  bool hasParts = false, hasTurn = false;
};

} // namespace

static constexpr std::array kTypes = std::to_array<BlockType>({
    {"text", BlockUse::Text, "text"},
    {"thinking", BlockUse::Reasoning, "thinking"},
    {"redacted_thinking", BlockUse::Ignored},
    {"tool_use", BlockUse::Call, "name", "id"},
    {"tool_result", BlockUse::Result, "tool_use_id"},
    {"search_result", BlockUse::Content},
    {"document", BlockUse::Document},
    {"image", BlockUse::Refused},
});

/// A member, or null.
static J memberOf(J object, std::string_view name) {
  static const ordered_json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

static std::string typeOf(J block, const Place &at) {
  if (!block.is_object() || !memberOf(block, "type").is_string())
    at.fail("must be an object with a type");
  return memberOf(block, "type").get<std::string>();
}

/// The row of a block's type, whose strings it has; null, with a note, for a
/// type that is not known.
static const BlockType *findType(J block, const Place &at) {
  const std::string type = typeOf(block, at);
  const auto *const found = std::ranges::find(kTypes, type, &BlockType::name);
  if (found == kTypes.end()) {
    at.limits.note(at.name + " of type " + quote(type.substr(0, 100)) +
                   " is left out: the server does not know the type");
    return nullptr;
  }
  for (std::string_view member : {found->text, found->other})
    if (!member.empty() && !memberOf(block, member).is_string())
      at.fail("must have a string as " + std::string(member));
  return found;
}

[[noreturn]] static void refuseMedium(J block, const Place &at) {
  at.fail("is of type " + quote(block["type"].get<std::string>()) +
          ", and the model reads text only");
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// The text of a content: a string, blocks or null.
static std::string contentText(J content, const Place &at);

/// The text of a document, whose source is a text or has a content.
static std::string documentText(J block, const Place &at) {
  J source = memberOf(block, "source");
  J type = source.is_object() ? memberOf(source, "type") : source;
  const std::string inner = at.name + ".source";
  if (type == "content")
    return contentText(memberOf(source, "content"),
                       {inner + ".content", at.limits});
  if (type != "text")
    refuseMedium(block, at);
  J data = memberOf(source, "data");
  if (!data.is_string())
    Place{inner, at.limits}.fail("must have a string as data");
  return data;
}

/// The text of a block within another one.
static std::string innerText(J block, const Place &at) {
  const BlockType *const type = findType(block, at);
  if (!type)
    return "";
  switch (type->use) {
  case BlockUse::Text:
    return memberOf(block, type->text);
  case BlockUse::Content:
    return contentText(memberOf(block, "content"),
                       {at.name + ".content", at.limits});
  case BlockUse::Document:
    return documentText(block, at);
  case BlockUse::Refused:
    refuseMedium(block, at);
  case BlockUse::Reasoning:
  case BlockUse::Call:
  case BlockUse::Result:
  case BlockUse::Ignored:
    break;
  }
  return "";
}

static std::string contentText(J content, const Place &at) {
  if (content.is_string())
    return content;
  if (!content.is_null() && !content.is_array())
    at.fail("must be a string or an array of blocks");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i)
    text += innerText(content[i], {indexed(at.name, i), at.limits});
  return text;
}

/// The text of a system block. Claude Code sends a line with a number that
/// changes with each request, and with it no prompt would begin as the last
/// one.
static std::string withoutBilling(const std::string &text) {
  if (!text.starts_with("x-anthropic-billing-header:"))
    return text;
  const size_t end = text.find('\n');
  return end == std::string::npos ? "" : text.substr(end + 1);
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

void TurnWriter::addText(const std::string &more) {
  if (role != "system") {
    text += more;
    hasParts = true;
    return;
  }
  if (const std::string rest = withoutBilling(more); !rest.empty())
    turns.push_back({{"role", role}, {"content", rest}});
}

void TurnWriter::addCall(J block) {
  calls.push_back({{"type", "function"},
                   {"id", block["id"]},
                   {"function",
                    {{"name", block["name"]},
                     {"arguments", callArguments(memberOf(block, "input"))}}}});
  hasParts = true;
}

void TurnWriter::addResult(J block, const std::string &content) {
  flush();
  const bool isError = memberOf(block, "is_error") == true;
  turns.push_back({{"role", "tool"},
                   {"content", (isError ? "Error: " : "") + content},
                   {"tool_call_id", block["tool_use_id"]}});
  hasTurn = true;
}

void TurnWriter::flush() {
  if (!std::exchange(hasParts, false))
    return;
  ordered_json turn = {{"role", role}, {"content", std::exchange(text, {})}};
  if (!reasoning.empty())
    turn["reasoning_content"] = std::exchange(reasoning, {});
  if (!calls.empty())
    turn["tool_calls"] = std::exchange(calls, ordered_json::array());
  turns.push_back(std::move(turn));
  hasTurn = true;
}

void TurnWriter::finish() {
  hasParts |= !reasoning.empty() || (!hasTurn && role != "system");
  flush();
}

static void addBlock(J block, const Place &at, TurnWriter &writer) {
  const BlockType *const type = findType(block, at);
  if (!type)
    return;
  switch (type->use) {
  case BlockUse::Reasoning:
    return writer.addReasoning(memberOf(block, type->text));
  case BlockUse::Call:
    return writer.addCall(block);
  case BlockUse::Result:
    return writer.addResult(block,
                            contentText(memberOf(block, "content"),
                                        {at.name + ".content", at.limits}));
  case BlockUse::Ignored:
    return;
  case BlockUse::Text:
  case BlockUse::Content:
  case BlockUse::Document:
  case BlockUse::Refused:
    return writer.addText(innerText(block, at));
  }
}

/// Writes the messages of a content: a string, or blocks.
static void addContent(J content, const Place &at, const std::string &role,
                       ordered_json &turns) {
  TurnWriter writer(turns, role);
  if (content.is_string())
    writer.addText(content);
  else if (!content.is_array())
    at.fail("must be a string or an array of blocks");
  else
    for (size_t i = 0; i < content.size(); ++i)
      addBlock(content[i], {indexed(at.name, i), at.limits}, writer);
  writer.finish();
}

static constexpr std::array kTurnRoles =
    std::to_array<std::string_view>({"user", "assistant", "system"});

ordered_json messages::systemTurns(J value, const std::string &name,
                                   const ParameterLimits &limits) {
  ordered_json turns = ordered_json::array();
  addContent(value, {name, limits}, "system", turns);
  return turns;
}

ordered_json messages::conversationTurns(J value, const std::string &name,
                                         const ParameterLimits &limits) {
  if (!value.is_array() || value.empty())
    Place{name, limits}.fail("must be an array of messages, not empty");
  ordered_json turns = ordered_json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string each = indexed(name, i);
    if (!value[i].is_object() || !memberOf(value[i], "role").is_string())
      Place{each, limits}.fail("must be an object with a role");
    const auto &role = value[i]["role"].get_ref<const std::string &>();
    if (!std::ranges::count(kTurnRoles, role))
      Place{each + ".role", limits}.fail(
          "must be user, assistant or system, not " + quote(role));
    addContent(memberOf(value[i], "content"), {each + ".content", limits}, role,
               turns);
  }
  return turns;
}

//===----------------------------------------------------------------------===//
// Schemas
//===----------------------------------------------------------------------===//

static ordered_json objectWith(const ordered_json &properties) {
  ordered_json schema = {{"type", "object"}, {"properties", properties}};
  for (const auto &[key, value] : properties.items())
    schema["required"].push_back(key);
  return schema;
}

/// A string, or an array of blocks.
static ordered_json contentSchema(const ordered_json &block) {
  return {
      {"anyOf", ordered_json::array({{{"type", "string"}},
                                     {{"type", "array"}, {"items", block}}})}};
}

/// The schema of blocks of types that are not known or, where blocks have no
/// content, need no members.
static ordered_json otherBlock(bool hasContent) {
  ordered_json names = ordered_json::array();
  for (const BlockType &type : kTypes)
    if (hasContent || !type.text.empty() || type.use == BlockUse::Document ||
        type.use == BlockUse::Refused)
      names.push_back(type.name);
  return objectWith(
      {{"type",
        {{"type", "string"},
         {"not", {{"enum", names}}},
         {"description", "A block of another type has no effect"}}}});
}

/// The schema of texts within a block, and of a system text.
static ordered_json textBlock() {
  return {{"anyOf",
           ordered_json::array({objectWith({{"type", {{"const", "text"}}},
                                            {"text", {{"type", "string"}}}}),
                                otherBlock(false)})}};
}

static ordered_json blockSchema() {
  const ordered_json text = {{"type", "string"}};
  ordered_json kinds = ordered_json::array();
  for (const BlockType &type : kTypes) {
    if (type.use == BlockUse::Refused)
      continue;
    ordered_json members = {{"type", {{"const", type.name}}}};
    for (std::string_view member : {type.text, type.other})
      if (!member.empty())
        members[std::string(member)] = text;
    if (type.use == BlockUse::Document)
      members["source"] =
          objectWith({{"type", {{"const", "text"}}}, {"data", text}});
    ordered_json kind = objectWith(members);
    if (type.use == BlockUse::Content || type.use == BlockUse::Result)
      kind["properties"]["content"] = orNull(contentSchema(textBlock()));
    kinds.push_back(kind);
  }
  kinds.push_back(otherBlock(true));
  return {{"anyOf", kinds}};
}

ordered_json messages::systemSchema(const ParameterLimits & /*limits*/) {
  return contentSchema(textBlock());
}

ordered_json messages::conversationSchema(const ParameterLimits & /*limits*/) {
  return {{"type", "array"},
          {"minItems", 1},
          {"items", objectWith({{"role", {{"enum", kTurnRoles}}},
                                {"content", contentSchema(blockSchema())}})}};
}
