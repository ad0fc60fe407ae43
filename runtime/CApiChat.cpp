//===- CApiChat.cpp - C interface of chat templates -----------------------===//

#include "CApiModel.h"

#include "qwen/Support/JsonValue.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using namespace qwen::capi;

/// The chat template's variables in the argument `json` of a function.
static nlohmann::ordered_json variablesOf(Need need, const char *json,
                                          size_t size) {
  need("json", json);
  return parseJsonObject<nlohmann::ordered_json>(
      {json, size}, std::string(need.function) + ": json");
}

namespace {
/// The JSON that a function gets.
struct JsonArgument {
  const char *text;
  size_t size;
};

/// Where a function writes.
template <typename ElementType> struct Output {
  ElementType *to;
  size_t capacity;
};
} // namespace

/// The body of qwen_render_chat and qwen_template_render. formatOf() is the
/// format.
template <typename FormatOf>
static int64_t render(Need need, const FormatOf &formatOf, JsonArgument json,
                      Output<char> text) {
  const auto given = variablesOf(need, json.text, json.size);
  need("text", text.to, text.capacity);
  return copyOut(formatOf().render(given).bytes(), text.to, text.capacity);
}

/// The body of qwen_encode_chat and qwen_template_encode.
template <typename FormatOf>
static int64_t encode(Need need, const FormatOf &formatOf, JsonArgument json,
                      int32_t flags, Output<int32_t> ids) {
  const auto variables = variablesOf(need, json.text, json.size);
  need("ids", ids.to, ids.capacity);
  checkFlags(need.function, flags, QWEN_ALLOW_SPECIAL | QWEN_CONTINUE_MESSAGE);
  const ChatFormat::Options options = {
      .allowSpecial = (flags & QWEN_ALLOW_SPECIAL) != 0,
      .continueFinalMessage = (flags & QWEN_CONTINUE_MESSAGE) != 0};
  return copyOut(formatOf().encode(variables, options), ids.to, ids.capacity);
}

int64_t qwen_render_chat(const qwen_model *model, const char *json, size_t size,
                         char *text, size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    const auto format = [&]() -> auto & { return model->chatFormat(); };
    return render(need, format, {json, size}, {text, capacity});
  });
}

int64_t qwen_encode_chat(const qwen_model *model, const char *json, size_t size,
                         int32_t flags, int32_t *ids, size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    const auto format = [&]() -> auto & { return model->chatFormat(); };
    return encode(need, format, {json, size}, flags, {ids, capacity});
  });
}

const TurnRules &qwen_model::turnRules() const {
  std::call_once(rulesMade, [&] { rules = turnRulesOf(chatFormat()); });
  return rules;
}

/// Throws Error for messages that turnsFor does not take.
static void checkMessages(Need need, const nlohmann::ordered_json &messages) {
  const auto isText = [](const auto &message, const char *name) {
    return message.contains(name) && message[name].is_string();
  };
  const auto isMessage = [&](const auto &each) {
    return each.is_object() && isText(each, "role") && isText(each, "content");
  };
  if (!messages.is_array() || !std::ranges::all_of(messages, isMessage))
    throw Error(std::string(need.function) +
                ": messages must be an array of objects, each with a role and "
                "a content, which are strings");
}

int64_t qwen_chat_turns(const qwen_model *model, const char *json, size_t size,
                        char *text, size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    auto given = variablesOf(need, json, size);
    need("text", text, capacity);
    auto &messages = given["messages"];
    checkMessages(need, messages);
    messages = turnsFor(model->turnRules(), messages);
    return copyOut(given.dump(), text, capacity);
  });
}

qwen_template *qwen_template_new(const qwen_model *model, const char *text,
                                 size_t size) {
  return with<qwen_template *>(__func__, model, [&](Need need) {
    need("text", text);
    return new qwen_template{ChatFormat({text, size}, model->tokenizer())};
  });
}

void qwen_template_free(qwen_template *chatTemplate) { delete chatTemplate; }

int64_t qwen_template_render(const qwen_template *chatTemplate,
                             const char *json, size_t size, char *text,
                             size_t capacity) {
  return with<int64_t>(__func__, chatTemplate, [&](Need need) {
    const auto format = [&]() -> auto & { return chatTemplate->format; };
    return render(need, format, {json, size}, {text, capacity});
  });
}

int64_t qwen_template_encode(const qwen_template *chatTemplate,
                             const char *json, size_t size, int32_t flags,
                             int32_t *ids, size_t capacity) {
  return with<int64_t>(__func__, chatTemplate, [&](Need need) {
    const auto format = [&]() -> auto & { return chatTemplate->format; };
    return encode(need, format, {json, size}, flags, {ids, capacity});
  });
}
