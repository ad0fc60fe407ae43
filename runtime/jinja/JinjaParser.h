//===- JinjaParser.h - From tokens to a template ----------------*- C++ -*-===//
//
// A recursive descent parser: statements in JinjaParser.cpp, expressions in
// JinjaExpressionParser.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_JINJA_JINJAPARSER_H
#define QWEN_RUNTIME_JINJA_JINJAPARSER_H

#include "jinja/JinjaSyntax.h"

#include <algorithm>
#include <initializer_list>

namespace qwen::jinja {

/// Maximum nesting: more would overflow the stack, and templates need less.
inline constexpr int kMaxNesting = 100;

class Parser {
public:
  explicit Parser(std::string_view source) : tokens(tokenize(source)) {}

  Body parseAll() {
    std::string end;
    Body body = parseBody({}, end);
    return body;
  }

private:
  // Statements
  Body parseBody(std::initializer_list<std::string_view> ends,
                 std::string &end);
  Body parseBodyTo(std::string_view end);
  void parseStatement(Body &body);
  Statement parseIf();
  Statement parseFor();
  Statement parseSet();
  Statement parseMacro();
  Statement parseCallBlock();
  Statement parseFilterBlock();
  Statement parseWith();
  void parseParameters(Statement &statement);
  std::vector<std::string> parseTargets();
  std::string parseTarget();

  // Expressions
  ExpressionPtr parseTuple();
  ExpressionPtr parseExpression();
  ExpressionPtr parseOr();
  ExpressionPtr parseAnd();
  ExpressionPtr parseNot();
  ExpressionPtr parseComparison();
  ExpressionPtr parseSum();
  ExpressionPtr parseConcat();
  ExpressionPtr parseProduct();
  ExpressionPtr parsePower();
  ExpressionPtr parseUnary(bool withFilters = true);
  ExpressionPtr parsePrimary();
  ExpressionPtr parsePostfix(ExpressionPtr node);
  ExpressionPtr parseFilters(ExpressionPtr node);
  ExpressionPtr parseFilter(ExpressionPtr input);
  ExpressionPtr parseTest(ExpressionPtr input);
  ExpressionPtr parseSubscript(ExpressionPtr object);
  void parseArguments(Expression &call);
  ExpressionPtr parseItems(Expression::Kind kind, const char *close);

  // Tokens
  const Token &peek(size_t ahead = 0) const {
    return tokens[std::min(at + ahead, tokens.size() - 1)];
  }
  const Token &next() {
    const Token &token = peek();
    if (at + 1 < tokens.size())
      ++at;
    return token;
  }
  bool isOperator(std::string_view text) const {
    return peek().kind == Token::Operator && peek().text == text;
  }
  bool isName(std::string_view text) const {
    return peek().kind == Token::Name && peek().text == text;
  }
  bool takeOperator(std::string_view text) {
    const bool found = isOperator(text);
    if (found)
      next();
    return found;
  }
  bool takeName(std::string_view text) {
    const bool found = isName(text);
    if (found)
      next();
    return found;
  }
  void expectOperator(std::string_view text) {
    if (!takeOperator(text))
      fail("expected '" + std::string(text) + "'");
  }
  void expectName(std::string_view text) {
    if (!takeName(text))
      fail("expected '" + std::string(text) + "'");
  }
  std::string takeAnyName(const char *what) {
    if (peek().kind != Token::Name)
      fail(std::string("expected ") + what);
    return next().text;
  }
  void endBlock() {
    if (peek().kind != Token::BlockEnd)
      fail("expected the end of the tag");
    next();
  }
  [[noreturn]] void fail(const std::string &what) const;

  ExpressionPtr make(Expression::Kind kind, int line) {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  /// Adds an operand, which may be null, and checks the depth.
  void add(Expression &node, ExpressionPtr operand) {
    if (operand)
      deepen(node, *operand);
    node.operands.push_back(std::move(operand));
  }
  void deepen(Expression &node, const Expression &operand) {
    node.depth = std::max(node.depth, operand.depth + 1);
    if (node.depth > kMaxNesting)
      failAt(node.line, "the expression is nested too deeply");
  }

  /// Counts and limits the levels of the parser's own recursion.
  struct Nesting {
    explicit Nesting(Parser &owner) : parser(owner) {
      if (++parser.nesting > kMaxNesting)
        failAt(parser.peek().line, "the template is nested too deeply");
    }
    ~Nesting() { --parser.nesting; }
    Parser &parser;
  };

  std::vector<Token> tokens;
  size_t at = 0;
  int nesting = 0;
  int loops = 0;
};

} // namespace qwen::jinja

#endif // QWEN_RUNTIME_JINJA_JINJAPARSER_H
