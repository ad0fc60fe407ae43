//===- ChatTemplate.cpp - From messages to a prompt -----------------------===//

#include "ChatTemplate.h"

#include "JinjaInterpreter.h"
#include "Unicode.h"

using namespace qwen;

ChatTemplate ChatTemplate::parse(std::string_view source) {
  if (!isValidUtf8(source))
    throw Error("the chat template is not UTF-8");
  ChatTemplate result;
  result.root =
      std::make_shared<const jinja::Template>(jinja::parseTemplate(source));
  return result;
}

std::string ChatTemplate::render(const nlohmann::ordered_json &context) const {
  if (!context.is_object())
    throw Error("the values for a chat template are no JSON object");
  return jinja::Interpreter().render(*root, context,
                                     {{"tools", jinja::Value()},
                                      {"documents", jinja::Value()},
                                      {"add_generation_prompt", false}});
}
