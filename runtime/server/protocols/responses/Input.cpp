//===- Input.cpp - From items to messages ---------------------------------===//

#include "server/protocols/responses/Input.h"

#include "server/Conversation.h"
#include "server/http/ApiError.h"
#include "server/protocols/responses/Sealed.h"
#include "server/protocols/responses/Tools.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <utility>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;

namespace {

/// Makes messages of items.
class InputReader {
public:
  InputReader(std::string parameter, const ParameterLimits &parameterLimits)
      : input(std::move(parameter)), limits(parameterLimits) {}

  /// Reads the next item.
  void add(J item, size_t index);
  void addUser(const std::string &text) {
    messages.push_back({{"role", "user"}, {"content", text}});
  }
  ordered_json finish();

  // Each reads an item of its kind.
  void addMessage(J item);
  void addReasoning(J item);
  void addFunctionCall(J item);
  void addCustomCall(J item);
  void addOutput(J item);

private:
  void addCall(J item, const ordered_json &arguments);
  /// The string member of an item; empty if it is missing and need not be
  /// there.
  std::string member(J item, const char *key, bool isNeeded) const;
  /// The text of a string or of parts.
  std::string textOf(J content, const std::string &name, bool isOutput) const;
  std::string partText(J part, const std::string &name, bool isOutput) const;
  /// The message of the answer that is read. Begins one if there is none, or if
  /// `isText` and the message has its text.
  ordered_json &answer(bool isText);
  void endAnswer();

  /// The parameter, and the item that is read.
  const std::string input;
  std::string place;
  const ParameterLimits &limits;
  ordered_json messages = ordered_json::array();
  /// Whether the last message is an answer that goes on.
  bool isOpen = false;
  /// Reasoning of the next part of an answer.
  std::string reasoning;
};

/// A type of items.
struct ItemForm {
  std::string_view type;
  void (InputReader::*read)(J item);
  /// The members that it must have, and the kinds of all that are checked; see
  /// inputSchema.
  const char *required, *members;
};

/// A role of messages, and the role that the chat template reads.
struct InputRole {
  std::string_view name;
  const char *written;
};

} // namespace

static constexpr const char *kCallMembers =
    R"({"name": "string", "namespace": "text", "call_id": "text"})";
static constexpr const char *kOutputMembers =
    R"({"output": "output", "call_id": "text"})";

static constexpr std::array kItemForms = std::to_array<ItemForm>({
    {"message", &InputReader::addMessage, R"(["role", "content"])",
     R"({"role": "role", "content": "texts"})"},
    {"reasoning", &InputReader::addReasoning, R"(["type"])",
     R"({"content": "texts?"})"},
    {"function_call", &InputReader::addFunctionCall, R"(["type", "name"])",
     kCallMembers},
    {"custom_tool_call", &InputReader::addCustomCall, R"(["type", "name"])",
     R"({"name": "string", "namespace": "text", "call_id": "text",
         "input": "text"})"},
    {"function_call_output", &InputReader::addOutput, R"(["type", "output"])",
     kOutputMembers},
    {"custom_tool_call_output", &InputReader::addOutput,
     R"(["type", "output"])", kOutputMembers},
});

static constexpr std::array kInputRoles = std::to_array<InputRole>({
    {"user", "user"},
    {"system", "system"},
    {"developer", "system"},
    {"assistant", nullptr},
});

/// The members of all items.
static constexpr std::array kItemMembers = std::to_array<std::string_view>(
    {"type", "id", "status", "role", "content", "phase", "summary",
     "encrypted_content", "call_id", "name", "namespace", "arguments", "input",
     "output", "caller", "async"});

[[noreturn]] static void refuseItem(const std::string &name,
                                    const std::string &what) {
  throw ApiError(400, name + " " + what, name);
}

std::string InputReader::member(J item, const char *key, bool isNeeded) const {
  J value = item.value(key, ordered_json());
  if (value.is_null() && !isNeeded)
    return "";
  if (!value.is_string())
    refuseItem(place + "." + key, "must be a string");
  return value;
}

std::string InputReader::partText(J part, const std::string &name,
                                  bool isOutput) const {
  if (!part.is_object() || !part.value("type", ordered_json()).is_string())
    refuseItem(name, "must be an object with a type");
  const std::string type = part["type"];
  // Of refusals, whatever their name.
  for (const char *key : {"text", "refusal"})
    if (J text = part.value(key, ordered_json()); text.is_string())
      return text;
  const std::string remark = "the model reads text only";
  if (!isOutput)
    refuseItem(name, "is of type " + quote(type) + "; " + remark);
  // An agent could not take back what its tool has found.
  limits.note(name + " of type " + quote(type) + " is left out: " + remark);
  return "[" + printable(type) + " is left out: " + remark + "]";
}

std::string InputReader::textOf(J content, const std::string &name,
                                bool isOutput) const {
  if (content.is_string())
    return content;
  if (!content.is_array())
    refuseItem(name, "must be a string or an array of parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i)
    text += partText(content[i], indexed(name, i), isOutput);
  return text;
}

void InputReader::endAnswer() {
  // The answer has ended in its reasoning.
  if (!reasoning.empty())
    answer(false);
  isOpen = false;
}

ordered_json &InputReader::answer(bool isText) {
  if (isOpen) {
    ordered_json &last = messages.back();
    // Text behind calls belongs to the text before them, as chat has it.
    if (reasoning.empty() &&
        (!isText || last["content"] == "" || last.contains("tool_calls")))
      return last;
  }
  ordered_json begun = {{"role", "assistant"}, {"content", ""}};
  if (!reasoning.empty())
    begun["reasoning_content"] = std::exchange(reasoning, {});
  isOpen = true;
  messages.push_back(std::move(begun));
  return messages.back();
}

void InputReader::addMessage(J item) {
  const std::string asked = member(item, "role", true);
  const auto *const role =
      std::ranges::find(kInputRoles, asked, &InputRole::name);
  if (role == kInputRoles.end())
    refuseItem(place + ".role",
               "must be one of user, system, developer, assistant, not " +
                   quote(asked));
  const std::string text =
      textOf(item.value("content", ordered_json()), place + ".content", false);
  if (!role->written) {
    ordered_json &to = answer(true);
    to["content"] = to["content"].get<std::string>() + text;
    return;
  }
  endAnswer();
  messages.push_back({{"role", role->written}, {"content", text}});
}

void InputReader::addReasoning(J item) {
  std::string text;
  J sealed = item.value("encrypted_content", ordered_json());
  if (sealed.is_string()) {
    if (const auto opened =
            responses::unseal(sealed.get_ref<const std::string &>()))
      text = *opened;
    else
      limits.note(place + ".encrypted_content is left out: it is damaged, or "
                          "another server's");
  }
  if (J content = item.value("content", ordered_json());
      text.empty() && !content.is_null())
    text = textOf(content, place + ".content", false);
  reasoning += text;
}

void InputReader::addCall(J item, const ordered_json &arguments) {
  ordered_json call = {{"type", "function"}};
  if (const std::string id = member(item, "call_id", false); !id.empty())
    call["id"] = id;
  call["function"] = {
      {"name", responses::functionName(member(item, "namespace", false),
                                       member(item, "name", true))},
      {"arguments", arguments}};
  answer(false)["tool_calls"].push_back(std::move(call));
}

void InputReader::addFunctionCall(J item) {
  addCall(item, callArguments(item.value("arguments", ordered_json())));
}

void InputReader::addCustomCall(J item) {
  addCall(item, {{responses::kCustomInput, member(item, "input", false)}});
}

void InputReader::addOutput(J item) {
  endAnswer();
  ordered_json message = {
      {"role", "tool"},
      {"content",
       textOf(item.value("output", ordered_json()), place + ".output", true)}};
  if (const std::string id = member(item, "call_id", false); !id.empty())
    message["tool_call_id"] = id;
  messages.push_back(std::move(message));
}

void InputReader::add(J item, size_t index) {
  place = indexed(input, index);
  if (!item.is_object())
    refuseItem(place, "must be an object");
  J type = item.value("type", ordered_json());
  if (type == "item_reference" || (type.is_null() && !item.contains("role")))
    refuseItem(place, "must be a whole item: the server keeps none that it "
                      "could refer to");
  const auto *const form = std::ranges::find_if(
      kItemForms, [&](const ItemForm &each) { return type == each.type; });
  if (form == kItemForms.end() && !type.is_null()) {
    limits.note(
        place + " of type " +
        quote(type.is_string() ? type.get<std::string>() : type.dump()) +
        " is left out");
    return;
  }
  requireMembers(item, place, {kItemMembers.begin(), kItemMembers.end()},
                 limits);
  (this->*(type.is_null() ? &InputReader::addMessage : form->read))(item);
}

ordered_json InputReader::finish() {
  endAnswer();
  return std::move(messages);
}

ordered_json responses::inputMessages(J value, const std::string &name,
                                      const ParameterLimits &limits) {
  InputReader reader(name, limits);
  if (value.is_string()) {
    reader.addUser(value);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i)
      reader.add(value[i], i);
  } else {
    refuseItem(name, "must be a string or an array of items");
  }
  return reader.finish();
}

/// A schema of a text, or of parts that must have the members `required`.
static ordered_json textSchema(const ordered_json &required) {
  const ordered_json string = {{"type", "string"}};
  return {{"anyOf",
           ordered_json::array(
               {string,
                {{"type", "array"},
                 {"items",
                  {{"type", "object"},
                   {"required", required},
                   {"properties", {{"type", string}, {"text", string}}}}}}})}};
}

/// The schema of a member of this kind.
static ordered_json memberSchema(const std::string &kind) {
  ordered_json string = {{"type", "string"}};
  if (kind == "role") {
    ordered_json names = ordered_json::array();
    for (const InputRole &role : kInputRoles)
      names.push_back(role.name);
    return {{"enum", names}};
  }
  if (kind == "text")
    return orNull(string);
  if (kind == "string")
    return string;
  if (kind == "output")
    return textSchema(ordered_json::array({"type"}));
  const ordered_json texts = textSchema(ordered_json::array({"type", "text"}));
  return kind == "texts?" ? orNull(texts) : texts;
}

ordered_json responses::inputSchema(const ParameterLimits &) {
  ordered_json kinds = ordered_json::array();
  ordered_json types = ordered_json::array({"item_reference"});
  for (const ItemForm &form : kItemForms) {
    types.push_back(form.type);
    ordered_json properties = {{"type", {{"const", form.type}}}};
    if (form.type == "message")
      properties["type"] = {{"enum", {form.type, nullptr}}};
    const ordered_json members = ordered_json::parse(form.members);
    for (const auto &[key, kind] : members.items())
      properties[key] = memberSchema(kind);
    kinds.push_back({{"type", "object"},
                     {"required", ordered_json::parse(form.required)},
                     {"properties", properties}});
  }
  // Items of other types are left out.
  kinds.push_back(
      {{"type", "object"},
       {"required", ordered_json::array({"type"})},
       {"properties",
        {{"type", {{"type", "string"}, {"not", {{"enum", types}}}}}}}});
  return {{"anyOf", ordered_json::array(
                        {{{"type", "string"}},
                         {{"type", "array"}, {"items", {{"anyOf", kinds}}}}})}};
}
