//===- ChatTemplate.cpp - From messages to a prompt -----------------------===//

#include "jinja/ChatTemplate.h"

#include "jinja/JinjaInterpreter.h"
#include "text/Unicode.h"

using namespace qwen;

ChatTemplate ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxBytes)
    throw Error("the chat template has " + std::to_string(source.size()) +
                " bytes when at most " + std::to_string(kMaxBytes) +
                " are allowed");
  if (!isValidUtf8(source))
    throw Error("the chat template is not UTF-8");
  ChatTemplate result;
  result.root =
      std::make_shared<const jinja::Template>(jinja::parseTemplate(source));
  return result;
}

MarkedText ChatTemplate::render(const nlohmann::ordered_json &input,
                                const nlohmann::ordered_json &own,
                                const std::function<bool()> &stop) const {
  if (!input.is_object())
    throw Error("the values for a chat template are no JSON object");
  nlohmann::ordered_json defaults = {{"tools", nullptr},
                                     {"documents", nullptr},
                                     {"add_generation_prompt", false}};
  defaults.update(own);
  return jinja::Interpreter(stop).render(*root, input, defaults);
}
