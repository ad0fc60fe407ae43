//===- JsonScanner.cpp - A JSON value that comes in pieces ----------------===//

#include "text/JsonScanner.h"

#include <nlohmann/json.hpp>

#include <cctype>
#include <utility>

using namespace qwen;

static bool isSpace(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static bool isWordByte(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) || byte == '-' ||
         byte == '+' || byte == '.';
}

/// A byte of a string as JSON writes it.
static void appendEscaped(char byte, std::string &out) {
  const std::string text = nlohmann::json(std::string(1, byte)).dump();
  out.append(text, 1, text.size() - 2);
}

bool JsonScanner::fail() {
  state = State::Bad;
  return false;
}

void JsonScanner::endValue() {
  state = brackets.empty() ? State::Done : State::After;
}

bool JsonScanner::open(char byte, State next, std::string &out) {
  if (brackets.size() == kMostDepth)
    return fail();
  brackets += byte;
  out += byte;
  state = next;
  return true;
}

bool JsonScanner::close(char byte, std::string &out) {
  const char opened = byte == '}' ? '{' : byte == ']' ? '[' : 0;
  if (brackets.empty() || brackets.back() != opened)
    return fail();
  brackets.pop_back();
  out += byte;
  endValue();
  return true;
}

void JsonScanner::endWord(std::string &out) {
  out += word;
  const bool isGood = nlohmann::json::accept(word);
  word.clear();
  if (isGood)
    endValue();
  else
    state = State::Bad;
}

bool JsonScanner::takeValue(char byte, std::string &out) {
  if (byte == '{')
    return open(byte, State::FirstKey, out);
  if (byte == '[')
    return open(byte, State::FirstElement, out);
  if (byte == '"') {
    out += byte;
    isKey = false;
    state = State::String;
    return true;
  }
  if (!isWordByte(byte))
    return fail();
  word = byte;
  state = State::Word;
  return true;
}

void JsonScanner::passHalf(std::string &out) {
  if (!std::exchange(half, {}).empty())
    out += "\\ufffd";
}

bool JsonScanner::takeInString(char byte, std::string &out) {
  if (byte == '\\') {
    state = State::Escape;
    return true;
  }
  passHalf(out);
  if (byte != '"') {
    if (static_cast<unsigned char>(byte) < 0x20)
      appendEscaped(byte, out);
    else
      out += byte;
    return true;
  }
  out += byte;
  if (isKey)
    state = State::Colon;
  else
    endValue();
  return true;
}

bool JsonScanner::takeEscape(char byte, std::string &out) {
  state = State::String;
  if (byte == 'u') {
    state = State::Hex;
    return true;
  }
  passHalf(out);
  // "\'" is an escape in other languages.
  if (byte == '\'')
    out += byte;
  else if (std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos)
    out.append(1, '\\').append(1, byte);
  else {
    out += "\\\\";
    return takeInString(byte, out);
  }
  return true;
}

bool JsonScanner::takeHex(char byte, std::string &out) {
  if (!std::isxdigit(static_cast<unsigned char>(byte))) {
    passHalf(out);
    out += "\\\\u" + std::exchange(word, {});
    state = State::String;
    return takeInString(byte, out);
  }
  word += byte;
  if (word.size() < 4)
    return true;
  state = State::String;
  const std::string digits = std::exchange(word, {});
  const unsigned long unit = std::stoul(digits, nullptr, 16);
  const bool isFirst = unit >= 0xD800 && unit < 0xDC00;
  const bool isSecond = unit >= 0xDC00 && unit < 0xE000;
  if (isSecond && !half.empty()) {
    out += "\\u" + std::exchange(half, {}) + "\\u" + digits;
    return true;
  }
  passHalf(out);
  if (isFirst)
    half = digits;
  else
    out += isSecond ? "\\ufffd" : "\\u" + digits;
  return true;
}

bool JsonScanner::takeAfter(char byte, std::string &out) {
  if (byte != ',')
    return close(byte, out);
  out += byte;
  state = brackets.back() == '{' ? State::Key : State::Value;
  return true;
}

bool JsonScanner::take(char byte, std::string &out) {
  if (state < State::Word && isSpace(byte)) {
    out += byte;
    return true;
  }
  switch (state) {
  case State::Value:
    return takeValue(byte, out);
  case State::FirstElement:
    return byte == ']' ? close(byte, out) : takeValue(byte, out);
  case State::FirstKey:
  case State::Key:
    if (byte == '}' && state == State::FirstKey)
      return close(byte, out);
    if (byte != '"')
      return fail();
    out += byte;
    isKey = true;
    state = State::String;
    return true;
  case State::Colon:
    if (byte != ':')
      return fail();
    out += byte;
    state = State::Value;
    return true;
  case State::After:
    return takeAfter(byte, out);
  case State::Word:
    if (isWordByte(byte)) {
      word += byte;
      return true;
    }
    endWord(out);
    return state != State::Bad && state != State::Done && take(byte, out);
  case State::String:
    return takeInString(byte, out);
  case State::Escape:
    return takeEscape(byte, out);
  case State::Hex:
    return takeHex(byte, out);
  case State::Done:
  case State::Bad:
    return false;
  }
  return false;
}

size_t JsonScanner::push(std::string_view text, std::string &out) {
  size_t size = 0;
  while (size < text.size() && !isDone() && take(text[size], out))
    ++size;
  return size;
}

void JsonScanner::finish(std::string &out) {
  if (state == State::Word)
    endWord(out);
  if (state == State::Hex)
    out += "\\u";
  if (state == State::Escape)
    out += '\\';
  out += std::exchange(word, {});
}
