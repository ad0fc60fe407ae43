//===- Gbnf.cpp - Grammars of llama.cpp -----------------------------------===//

#include "grammar/Gbnf.h"

#include "grammar/Grammar.h"
#include "text/LarkText.h"
#include "text/Unicode.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

using namespace qwen;

bool qwen::isGbnf(std::string_view text) {
  return text.find("::=") != std::string_view::npos;
}

namespace {

/// A part of the body of a rule.
struct Node {
  enum Kind : uint8_t {
    /// An expression of Lark.
    Expression,
    Reference,
    Sequence,
    Choice,
    /// The only part, `least` to `most` times.
    Repeat,
  };
  Kind kind;
  std::string expression = {};
  /// The index of a rule.
  size_t rule = 0;
  std::vector<Node> parts = {};
  uint64_t least = 0;
  std::optional<uint64_t> most = {};
};

struct Rule {
  std::string name;
  std::optional<Node> body = {};
  /// Whether no rule that it needs contains itself.
  bool isRegular = false;
};

class Reader {
public:
  explicit Reader(std::string_view grammar) : text(grammar) {}
  /// The rules in the order of their names' first places.
  std::vector<Rule> read();

private:
  [[noreturn]] void fail(const std::string &what) const;
  bool isAtEnd() const { return at == text.size(); }
  char next() const { return isAtEnd() ? '\0' : text[at]; }
  bool take(char c);
  /// Skips spaces and comments, and line breaks if they may come.
  void skip(bool takesLines);
  /// Whether the next line goes on with "|".
  bool takeLaterChoice();
  std::string name();
  size_t ruleOf(const std::string &name);
  Node choice(size_t depth);
  Node sequence(size_t depth);
  Node element(size_t depth);
  Node repeated(Node node);
  uint64_t number();
  Node literal();
  Node characters();
  /// A code point, as it is or escaped.
  char32_t character();
  char32_t hexadecimal(size_t digits);

  const std::string_view text;
  size_t at = 0;
  std::vector<Rule> rules;
  std::map<std::string, size_t> indices;
};

/// Writes rules in Lark.
class Writer {
public:
  explicit Writer(std::vector<Rule> gbnf) : rules(std::move(gbnf)) {}
  std::string write(size_t root);

private:
  void findRegular();
  bool isRegular(const Node &node) const;
  /// Of a rule that contains itself: parts that are regular become terminals.
  std::string mixed(const Node &node);
  std::string mixedSequence(const Node &node);
  std::string regular(const Node &node) const;
  std::string nameOf(size_t rule) const {
    return (rules[rule].isRegular ? "T" : "r") + std::to_string(rule);
  }

  std::vector<Rule> rules;
  /// Rules of further terminals.
  std::string terminals;
  size_t count = 0;
};

} // namespace

//===----------------------------------------------------------------------===//
// GBNF
//===----------------------------------------------------------------------===//

static constexpr size_t kMostDepth = 100;

static bool isWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '-' || c == '_';
}

void Reader::fail(const std::string &what) const {
  const auto line = 1 + std::ranges::count(text.substr(0, at), '\n');
  throw Error("line " + std::to_string(line) + " of the GBNF: " + what);
}

bool Reader::take(char c) {
  if (next() != c || isAtEnd())
    return false;
  ++at;
  return true;
}

void Reader::skip(bool takesLines) {
  for (; !isAtEnd(); ++at)
    if (const char c = text[at]; c == '#') {
      while (!isAtEnd() && text[at] != '\n')
        ++at;
      if (isAtEnd() || !takesLines)
        return;
    } else if (c != ' ' && c != '\t' &&
               !(takesLines && (c == '\n' || c == '\r'))) {
      return;
    }
}

bool Reader::takeLaterChoice() {
  const size_t before = at;
  skip(true);
  if (take('|'))
    return true;
  at = before;
  return false;
}

std::string Reader::name() {
  const size_t start = at;
  while (!isAtEnd() && isWord(text[at]))
    ++at;
  if (at == start)
    fail("the name of a rule is needed" +
         (isAtEnd() ? "" : ", not " + quote(text.substr(at, 1))));
  return std::string(text.substr(start, at - start));
}

size_t Reader::ruleOf(const std::string &name) {
  const auto [found, isNew] = indices.emplace(name, rules.size());
  if (isNew)
    rules.push_back({.name = name});
  return found->second;
}

std::vector<Rule> Reader::read() {
  for (skip(true); !isAtEnd(); skip(true)) {
    const size_t index = ruleOf(name());
    skip(false);
    if (text.substr(at, 3) != "::=")
      fail("::= is needed behind the name of a rule");
    at += 3;
    if (rules[index].body)
      fail("the rule " + quote(rules[index].name) + " is there twice");
    skip(true);
    Node body = choice(0);
    rules[index].body = std::move(body);
    if (rules.size() > GrammarLimits::kParts)
      fail("more than " + std::to_string(GrammarLimits::kParts) + " rules");
    if (!isAtEnd() && next() != '\n' && next() != '\r')
      fail("the rule does not end at " + quote(text.substr(at, 1)));
  }
  for (const Rule &rule : rules)
    if (!rule.body)
      throw Error("the GBNF has no rule " + quote(rule.name));
  return std::move(rules);
}

Node Reader::choice(size_t depth) {
  Node all{.kind = Node::Choice};
  all.parts.push_back(sequence(depth));
  while (take('|') || takeLaterChoice()) {
    skip(true);
    all.parts.push_back(sequence(depth));
  }
  return all;
}

Node Reader::sequence(size_t depth) {
  Node all{.kind = Node::Sequence};
  while (!isAtEnd() && next() != '|' && next() != ')' && next() != '\n' &&
         next() != '\r') {
    all.parts.push_back(repeated(element(depth)));
    skip(depth > 0);
  }
  return all;
}

Node Reader::element(size_t depth) {
  switch (next()) {
  case '"':
    return literal();
  case '[':
    return characters();
  case '.':
    ++at;
    return {.kind = Node::Expression, .expression = "/(?s:.)/"};
  case '<':
  case '!':
    fail("a token, such as <think>, is not converted; write its text");
  case '(': {
    if (depth == kMostDepth)
      fail("parentheses are more than " + std::to_string(kMostDepth) + " deep");
    ++at;
    skip(true);
    Node inner = choice(depth + 1);
    if (!take(')'))
      fail("a ) is missing");
    return inner;
  }
  default:
    return {.kind = Node::Reference, .rule = ruleOf(name())};
  }
}

uint64_t Reader::number() {
  constexpr uint64_t kMost = 100000;
  uint64_t value = 0;
  const char *const first = text.data() + at;
  const auto [last, wrong] =
      std::from_chars(first, text.data() + text.size(), value);
  if (wrong != std::errc() || value > kMost)
    fail("a number of repetitions from 0 to " + std::to_string(kMost) +
         " is needed");
  at += static_cast<size_t>(last - first);
  return value;
}

Node Reader::repeated(Node node) {
  const auto repeat = [&](uint64_t least, std::optional<uint64_t> most) {
    Node outer{.kind = Node::Repeat, .least = least, .most = most};
    outer.parts.push_back(std::move(node));
    node = std::move(outer);
  };
  constexpr size_t kMostRepeats = 8;
  for (size_t count = 0;; ++count) {
    skip(false);
    if (count == kMostRepeats)
      fail("more than " + std::to_string(kMostRepeats) +
           " repetitions in a row");
    if (take('*')) {
      repeat(0, std::nullopt);
    } else if (take('+')) {
      repeat(1, std::nullopt);
    } else if (take('?')) {
      repeat(0, 1);
    } else if (take('{')) {
      skip(false);
      const uint64_t least = next() == ',' ? 0 : number();
      skip(false);
      std::optional<uint64_t> most = least;
      if (take(',')) {
        skip(false);
        most = next() == '}' ? std::nullopt : std::optional(number());
        skip(false);
      }
      if (!take('}') || most.value_or(least) < least)
        fail("a repetition must be {M}, {M,} or {M,N} with M up to N");
      repeat(least, most);
    } else {
      return node;
    }
  }
}

char32_t Reader::hexadecimal(size_t digits) {
  constexpr uint32_t kMost = 0x10ffff;
  uint32_t value = 0;
  const std::string_view part = text.substr(at, digits);
  const auto [last, wrong] =
      std::from_chars(part.data(), part.data() + part.size(), value, 16);
  if (wrong != std::errc() || part.size() != digits ||
      last != part.data() + part.size() || value > kMost ||
      (value >= 0xd800 && value < 0xe000))
    fail("an escape needs " + std::to_string(digits) +
         " digits of a character");
  at += digits;
  return value;
}

char32_t Reader::character() {
  if (isAtEnd())
    fail("the grammar ends within a text or a class");
  const char c = text[at];
  if (c != '\\') {
    const auto lead = static_cast<uint8_t>(c);
    const size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    char32_t code = size == 1 ? lead : lead & (0xffU >> (size + 1));
    for (size_t i = 1; i < size && at + i < text.size(); ++i)
      code = code << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3fU);
    at = std::min(at + size, text.size());
    return code;
  }
  ++at;
  const char kind = next();
  at += isAtEnd() ? 0 : 1;
  switch (kind) {
  case 'x':
    return hexadecimal(2);
  case 'u':
    return hexadecimal(4);
  case 'U':
    return hexadecimal(8);
  case 'n':
    return '\n';
  case 'r':
    return '\r';
  case 't':
    return '\t';
  case '\\':
  case '"':
  case '[':
  case ']':
    return static_cast<char32_t>(kind);
  default:
    fail("no escape begins with \\" + printable(std::string(1, kind)));
  }
}

Node Reader::literal() {
  std::string found;
  ++at;
  while (next() != '"' || isAtEnd())
    appendUtf8(found, character());
  ++at;
  return {.kind = Node::Expression, .expression = larkString(found)};
}

/// A code point in a class of a regular expression.
static std::string inClass(char32_t code) {
  if (code < 0x80 && isWord(static_cast<char>(code)) && code != '-')
    return {static_cast<char>(code)};
  char digits[9];
  snprintf(digits, sizeof(digits), "%x", static_cast<unsigned>(code));
  return "\\x{" + std::string(digits) + "}";
}

Node Reader::characters() {
  ++at;
  const bool isNegated = take('^');
  std::string members;
  while (next() != ']' || isAtEnd()) {
    const char32_t first = character();
    members += inClass(first);
    if (next() == '-' && at + 1 < text.size() && text[at + 1] != ']') {
      ++at;
      const char32_t last = character();
      if (last < first)
        fail("a range of characters ends before its start");
      members += "-" + inClass(last);
    }
  }
  ++at;
  if (members.empty() && !isNegated)
    fail("[] has no character");
  return {.kind = Node::Expression,
          .expression = members.empty() ? "/(?s:.)/"
                        : isNegated     ? "/[^" + members + "]/"
                                        : "/[" + members + "]/"};
}

//===----------------------------------------------------------------------===//
// Lark
//===----------------------------------------------------------------------===//

bool Writer::isRegular(const Node &node) const {
  if (node.kind == Node::Reference)
    return rules[node.rule].isRegular;
  return std::ranges::all_of(node.parts,
                             [&](const Node &part) { return isRegular(part); });
}

/// Calls `use` with the rule of each reference.
template <typename Use> static void forReferences(const Node &node, Use use) {
  if (node.kind == Node::Reference)
    use(node.rule);
  for (const Node &part : node.parts)
    forReferences(part, use);
}

void Writer::findRegular() {
  std::vector<size_t> waiting(rules.size()), ready;
  std::vector<std::vector<size_t>> users(rules.size());
  for (size_t i = 0; i < rules.size(); ++i)
    forReferences(*rules[i].body, [&](size_t needed) {
      ++waiting[i];
      users[needed].push_back(i);
    });
  for (size_t i = 0; i < rules.size(); ++i)
    if (waiting[i] == 0)
      ready.push_back(i);
  while (!ready.empty()) {
    const size_t index = ready.back();
    ready.pop_back();
    rules[index].isRegular = true;
    for (const size_t user : users[index])
      if (--waiting[user] == 0)
        ready.push_back(user);
  }
}

static std::string countOf(const Node &repeat) {
  if (!repeat.most && repeat.least < 2)
    return repeat.least ? "+" : "*";
  if (repeat.least == 0 && repeat.most == 1)
    return "?";
  std::string count = "{" + std::to_string(repeat.least) + ",";
  return count + (repeat.most ? std::to_string(*repeat.most) : "") + "}";
}

/// The texts of parts with `between`, in parentheses if there are several.
template <typename Text>
static std::string joined(const Node &node, const char *between, Text text) {
  std::string all;
  for (const Node &part : node.parts)
    all += (all.empty() ? "" : between) + text(part);
  if (node.parts.empty())
    return "\"\"";
  return node.parts.size() == 1 ? all : "(" + all + ")";
}

std::string Writer::regular(const Node &node) const {
  const auto inner = [this](const Node &part) { return regular(part); };
  switch (node.kind) {
  case Node::Expression:
    return node.expression;
  case Node::Reference:
    return nameOf(node.rule);
  case Node::Sequence:
    return joined(node, " ", inner);
  case Node::Choice:
    return joined(node, " | ", inner);
  case Node::Repeat:
    return "(" + regular(node.parts[0]) + ")" + countOf(node);
  }
  return "";
}

std::string Writer::mixedSequence(const Node &node) {
  std::string all;
  const auto add = [&](const std::string &text) {
    all += (all.empty() ? "" : " ") + text;
  };
  for (auto part = node.parts.begin(); part != node.parts.end();) {
    const auto end =
        std::find_if_not(part, node.parts.end(),
                         [this](const Node &each) { return isRegular(each); });
    if (part == end) {
      add(mixed(*part++));
      continue;
    }
    const std::string name = "P" + std::to_string(count++);
    terminals += name + ": " +
                 regular({.kind = Node::Sequence, .parts = {part, end}}) + "\n";
    add(name);
    part = end;
  }
  return all.empty() ? "\"\"" : "(" + all + ")";
}

std::string Writer::mixed(const Node &node) {
  switch (node.kind) {
  case Node::Reference:
    return nameOf(node.rule);
  case Node::Choice:
    return joined(node, " | ", [this](const Node &part) {
      return part.kind == Node::Sequence ? mixedSequence(part) : mixed(part);
    });
  case Node::Repeat:
    return "(" + mixed(node.parts[0]) + ")" + countOf(node);
  case Node::Sequence:
    return mixedSequence(node);
  case Node::Expression:
    break;
  }
  return node.expression;
}

std::string Writer::write(size_t root) {
  findRegular();
  std::string lark = "start: " + nameOf(root) + "\n";
  for (size_t i = 0; i < rules.size(); ++i)
    lark +=
        nameOf(i) + ": " +
        (rules[i].isRegular ? regular(*rules[i].body) : mixed(*rules[i].body)) +
        "\n";
  return lark + terminals;
}

std::string qwen::larkOfGbnf(std::string_view text) {
  std::vector<Rule> rules = Reader(text).read();
  const auto root = std::ranges::find(rules, "root", &Rule::name);
  if (root == rules.end())
    throw Error("the GBNF has no rule \"root\"");
  const auto index = static_cast<size_t>(root - rules.begin());
  return Writer(std::move(rules)).write(index);
}
