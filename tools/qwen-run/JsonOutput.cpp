//===- JsonOutput.cpp - JSON that commands print --------------------------===//

#include "JsonOutput.h"

#include "Output.h"

#include "qwen/Support/JsonDigits.h"

#include <nlohmann/json.hpp>

#include <span>
#include <string_view>
#include <type_traits>

using namespace qwen;
using namespace qwen::run;
using nlohmann::ordered_json;

JsonText qwen::run::jsonObject(std::initializer_list<JsonMember> members) {
  std::string text;
  for (const auto &[name, value] : members) {
    text += (text.empty() ? "" : ",") + dumpWithDigits(name) + ":";
    std::visit(
        [&](const auto &each) {
          if constexpr (std::is_same_v<decltype(each), const JsonText &>)
            text += each.text;
          else
            text += dumpWithDigits(each);
        },
        value);
  }
  return {"{" + text + "}"};
}

JsonText qwen::run::jsonArray(const std::vector<JsonText> &values) {
  std::string text;
  for (const JsonText &each : values)
    text += (text.empty() ? "" : ",") + each.text;
  return {"[" + text + "]"};
}

JsonText qwen::run::jsonArray(const std::vector<std::string> &values) {
  return {dumpWithDigits(values)};
}

JsonText qwen::run::joinObjects(const JsonText &first, const JsonText &more) {
  ordered_json all = ordered_json::parse(first.text);
  all.update(ordered_json::parse(more.text));
  return {dumpWithDigits(all)};
}

/// JSON with escapes for DEL and U+0080 to U+009F, which JSON may have as they
/// are. They are only in its strings.
static std::string withEscapes(std::string_view json) {
  constexpr char kDelete = '\x7f', kFirstByte = '\xc2';
  std::string text;
  for (size_t i = 0; i < json.size(); ++i) {
    const bool isControl = json[i] == kFirstByte && i + 1 < json.size() &&
                           static_cast<unsigned char>(json[i + 1]) < 0xa0;
    if (!isControl && json[i] != kDelete) {
      text += json[i];
      continue;
    }
    char escape[8];
    snprintf(escape, sizeof(escape), "\\u%04x",
             static_cast<unsigned char>(json[isControl ? ++i : i]));
    text += escape;
  }
  return text;
}

void qwen::run::writeJson(const JsonText &json, int indent) {
  const std::string text =
      indent < 0 ? json.text : ordered_json::parse(json.text).dump(indent);
  writeOut(withEscapes(text) + "\n");
}

void qwen::run::writeObject(std::initializer_list<JsonMember> members) {
  writeJson(jsonObject(members));
}
