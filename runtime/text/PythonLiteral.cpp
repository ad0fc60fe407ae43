//===- PythonLiteral.cpp - Values as Python writes them -------------------===//

#include "text/PythonLiteral.h"

#include <algorithm>
#include <cctype>

using namespace qwen;

namespace {
struct Word {
  std::string_view python, json;
};
} // namespace

static constexpr Word kWords[] = {
    {"True", "true"}, {"False", "false"}, {"None", "null"},
    {"true", "true"}, {"false", "false"}, {"null", "null"},
};

/// Appends a string that begins at `at` with its quote. Returns the place
/// behind it, or nothing if it has no end.
static std::optional<size_t> addString(std::string_view text, size_t at,
                                       std::string &json) {
  const char quote = text[at];
  json += '"';
  for (++at; at < text.size(); ++at) {
    const char byte = text[at];
    if (byte == quote) {
      json += '"';
      return at + 1;
    }
    if (byte == '"') {
      json += "\\\"";
    } else if (byte != '\\' || at + 1 == text.size()) {
      json += byte;
    } else if (const char next = text[++at]; next == '\'') {
      json += next;
    } else if (next == 'x') {
      json += "\\u00";
    } else {
      json.append({'\\', next});
    }
  }
  return std::nullopt;
}

/// Appends a name or a number that begins at `at`. Returns the place behind it,
/// or nothing if it has no JSON.
static std::optional<size_t> addWord(std::string_view text, size_t at,
                                     std::string &json) {
  const auto *const end =
      std::find_if_not(text.begin() + at, text.end(), [](char byte) {
        return std::isalnum(static_cast<unsigned char>(byte)) ||
               std::string_view("_.+-").find(byte) != std::string_view::npos;
      });
  const std::string_view word(text.begin() + at, end);
  const auto *const known = std::ranges::find(kWords, word, &Word::python);
  const bool isName = std::isalpha(static_cast<unsigned char>(word.front())) ||
                      word.front() == '_';
  if (isName && known == std::end(kWords))
    return std::nullopt;
  json += isName ? known->json : word;
  return at + word.size();
}

/// Appends a closing bracket in place of a comma before it.
static void close(char bracket, std::string &json) {
  const size_t last = json.find_last_not_of(" \t\r\n");
  if (last != std::string::npos && json[last] == ',')
    json.resize(last);
  json += bracket;
}

std::optional<std::string> qwen::jsonOfPython(std::string_view text) {
  std::string json;
  for (size_t at = 0; at < text.size();) {
    const char byte = text[at];
    std::optional<size_t> next = at + 1;
    if (byte == '\'' || byte == '"')
      next = addString(text, at, json);
    else if (std::isalnum(static_cast<unsigned char>(byte)) || byte == '_' ||
             byte == '-' || byte == '+' || byte == '.')
      next = addWord(text, at, json);
    else if (byte == ')' || byte == ']' || byte == '}')
      close(byte == ')' ? ']' : byte, json);
    else
      json += byte == '(' ? '[' : byte;
    if (!next)
      return std::nullopt;
    at = *next;
  }
  return json;
}
