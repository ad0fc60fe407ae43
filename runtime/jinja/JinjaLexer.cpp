//===- JinjaLexer.cpp - Splits a template into tokens ---------------------===//

#include "jinja/JinjaSyntax.h"
#include "text/Unicode.h"

#include <algorithm>
#include <optional>

using namespace qwen;
using namespace qwen::jinja;

void jinja::failAt(int line, const std::string &what) {
  throw Error("chat template, line " + std::to_string(line) + ": " + what);
}

static bool isBlank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}
static bool isDigit(char c) { return c >= '0' && c <= '9'; }
static bool isNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (c & 0x80);
}

namespace {

class Lexer {
public:
  explicit Lexer(std::string_view template_) : source(template_) {}

  std::vector<Token> run();

private:
  void lexTag(char kind);
  void lexComment();
  bool lexRaw();
  /// Takes the end of a tag, if it is next, and the removed newline or blanks
  /// after it.
  bool takeTagEnd(char first);
  void lexToken();
  void lexNumber();
  void lexString();
  std::optional<char32_t> hexCode(size_t digits);

  void addText(std::string_view text, char tagKind, char sign);
  void add(Token::Kind kind, std::string text = {}) {
    tokens.push_back({kind, line, std::move(text)});
  }
  char peek(size_t ahead = 0) const {
    return at + ahead < source.size() ? source[at + ahead] : '\0';
  }
  void advance(size_t count) {
    const std::string_view passed = source.substr(at, count);
    line += int(std::ranges::count(passed, '\n'));
    at += count;
  }
  void skipBlanks() {
    while (at < source.size() && isBlank(source[at]))
      advance(1);
  }

  std::string_view source;
  size_t at = 0;
  int line = 1;
  /// Whether the cursor is at the start of a line.
  bool isLineStart = true;
  std::vector<Token> tokens;
};

} // namespace

/// Adds the text before a tag. `tagKind` is the second character of the tag,
/// `sign` the - or + after it.
void Lexer::addText(std::string_view text, char tagKind, char sign) {
  const size_t size = text.size();
  if (sign == '-') {
    while (!text.empty() && isBlank(text.back()))
      text.remove_suffix(1);
  } else if (sign != '+' && tagKind != '{') {
    const size_t lineBegin = text.rfind('\n') + 1;
    if ((lineBegin > 0 || isLineStart) &&
        std::all_of(text.begin() + ptrdiff_t(lineBegin), text.end(), isBlank))
      text = text.substr(0, lineBegin);
  }
  if (!text.empty())
    add(Token::Text, std::string(text));
  advance(size);
}

std::vector<Token> Lexer::run() {
  while (at < source.size()) {
    size_t tag = at;
    while ((tag = source.find('{', tag)) != source.npos) {
      const char kind = tag + 1 < source.size() ? source[tag + 1] : '\0';
      if (kind == '{' || kind == '%' || kind == '#')
        break;
      ++tag;
    }
    if (tag == source.npos) {
      add(Token::Text, std::string(source.substr(at)));
      advance(source.size() - at);
      break;
    }
    const char kind = source[tag + 1];
    const char sign = tag + 2 < source.size() ? source[tag + 2] : '\0';
    const bool isSigned = sign == '-' || sign == '+';
    addText(source.substr(at, tag - at), kind, sign);
    advance(2 + isSigned);
    isLineStart = false;
    if (kind == '#')
      lexComment();
    else if (kind == '{' || !lexRaw())
      lexTag(kind);
  }
  add(Token::End);
  return std::move(tokens);
}

bool Lexer::takeTagEnd(char first) {
  const char sign = peek();
  const bool isSigned = sign == '-' || (sign == '+' && first != '}');
  if (peek(isSigned) != first || peek(isSigned + 1u) != '}')
    return false;
  const size_t begin = at;
  advance(isSigned + 2u);
  if (sign == '-')
    skipBlanks();
  else if (sign != '+' && first != '}' && peek() == '\n')
    advance(1);
  isLineStart = source[at - 1] == '\n' && at > begin;
  return true;
}

void Lexer::lexComment() {
  const int begin = line;
  const size_t end = source.find("#}", at);
  if (end == source.npos)
    failAt(begin, "the comment has no end");
  const bool isSigned =
      end > at && (source[end - 1] == '-' || source[end - 1] == '+');
  advance(end - at - isSigned);
  takeTagEnd('#');
}

bool Lexer::lexRaw() {
  const size_t begin = at;
  const int beginLine = line;
  skipBlanks();
  if (source.substr(at, 3) == "raw") {
    advance(3);
    skipBlanks();
    const bool strips = peek() == '-';
    if (peek(strips) == '%' && peek(strips + 1u) == '}') {
      advance(strips + 2u);
      if (strips)
        skipBlanks();
      isLineStart = false;
      for (size_t tag = source.find("{%", at); tag != source.npos;
           tag = source.find("{%", tag + 1)) {
        size_t word = tag + 2;
        const char sign = word < source.size() ? source[word] : '\0';
        word += sign == '-' || sign == '+';
        while (word < source.size() && isBlank(source[word]))
          ++word;
        if (source.substr(word, 6) != "endraw")
          continue;
        addText(source.substr(at, tag - at), '%', sign);
        advance(word + 6 - tag);
        skipBlanks();
        if (!takeTagEnd('%'))
          failAt(line, "endraw takes no arguments");
        return true;
      }
      failAt(beginLine, "raw has no endraw");
    }
  }
  at = begin;
  line = beginLine;
  return false;
}

void Lexer::lexTag(char kind) {
  const int begin = line;
  const bool isBlock = kind == '%';
  add(isBlock ? Token::BlockBegin : Token::VariableBegin);
  std::string open; // brackets
  for (;;) {
    skipBlanks();
    if (at == source.size())
      failAt(begin, std::string("the tag {") + kind + " has no end");
    if (open.empty() && takeTagEnd(isBlock ? '%' : '}')) {
      add(isBlock ? Token::BlockEnd : Token::VariableEnd);
      return;
    }
    const char c = peek();
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c)
        failAt(line, std::string("unexpected '") + c + "'");
      open.pop_back();
    }
    lexToken();
  }
}

void Lexer::lexToken() {
  const char c = peek();
  if (isNameStart(c)) {
    size_t size = 1;
    while (isNameStart(peek(size)) || isDigit(peek(size)))
      ++size;
    add(Token::Name, std::string(source.substr(at, size)));
    advance(size);
    return;
  }
  if (isDigit(c))
    return lexNumber();
  if (c == '\'' || c == '"')
    return lexString();
  for (std::string_view symbol :
       {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","})
    if (source.substr(at, symbol.size()) == symbol) {
      add(Token::Operator, std::string(symbol));
      advance(symbol.size());
      return;
    }
  failAt(line, std::string("unexpected '") + c + "'");
}

void Lexer::lexNumber() {
  std::string digits;
  const auto takeDigits = [&] {
    while (isDigit(peek()) || (peek() == '_' && isDigit(peek(1)))) {
      if (peek() != '_')
        digits += peek();
      advance(1);
    }
  };
  takeDigits();
  Token::Kind kind = Token::Integer;
  // "1.x" is an attribute of 1, and "a.0.b" are two of a.
  const bool isAttribute = !tokens.empty() && tokens.back().text == "." &&
                           tokens.back().kind == Token::Operator;
  if (!isAttribute && peek() == '.' && isDigit(peek(1))) {
    kind = Token::Float;
    digits += '.';
    advance(1);
    takeDigits();
  }
  const bool hasSign = peek(1) == '+' || peek(1) == '-';
  if (!isAttribute && (peek() == 'e' || peek() == 'E') &&
      isDigit(peek(1u + hasSign))) {
    kind = Token::Float;
    digits += source.substr(at, 1u + hasSign);
    advance(1u + hasSign);
    takeDigits();
  }
  add(kind, std::move(digits));
}

/// Takes `digits` hexadecimal digits and returns their value.
std::optional<char32_t> Lexer::hexCode(size_t digits) {
  char32_t code = 0;
  for (size_t i = 0; i < digits; ++i) {
    const char c = peek();
    const char letter = char(c | 0x20);
    if (!isDigit(c) && (letter < 'a' || letter > 'f'))
      return std::nullopt;
    code = code << 4 | char32_t(isDigit(c) ? c - '0' : letter - 'a' + 10);
    advance(1);
  }
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
    return std::nullopt;
  return code;
}

void Lexer::lexString() {
  const int begin = line;
  const char quote = peek();
  advance(1);
  std::string text;
  while (peek() != quote || at == source.size()) {
    if (at == source.size())
      failAt(begin, "the string has no end");
    if (peek() != '\\') {
      text += peek();
      advance(1);
      continue;
    }
    const char c = peek(1);
    advance(std::min<size_t>(2, source.size() - at));
    static constexpr std::string_view kEscaped = "\\'\"abfnrtv";
    static constexpr std::string_view kMeant = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t known = kEscaped.find(c); known != kEscaped.npos) {
      text += kMeant[known];
    } else if (c == '\n') {
      // The string continues on the next line.
    } else if (c >= '0' && c <= '7') {
      char32_t code = char32_t(c - '0');
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i) {
        code = code * 8 + char32_t(peek() - '0');
        advance(1);
      }
      appendUtf8(text, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::optional<char32_t> code = hexCode(c == 'x'   ? 2
                                                   : c == 'u' ? 4
                                                              : 8);
      if (!code)
        failAt(line, std::string("the escape \\") + c +
                         " in the string has no valid code");
      appendUtf8(text, *code);
    } else {
      (text += '\\') += c;
    }
  }
  advance(1);
  tokens.push_back({Token::String, begin, std::move(text)});
}

std::vector<Token> jinja::tokenize(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r')
      text += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n')
      text += '\n';
  }
  if (text.ends_with('\n'))
    text.pop_back();
  return Lexer(text).run();
}
