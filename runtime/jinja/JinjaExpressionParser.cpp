//===- JinjaExpressionParser.cpp - From tokens to expressions -------------===//

#include "jinja/JinjaParser.h"

#include <charconv>

using namespace qwen;
using namespace qwen::jinja;

// The functions are in the order of precedence; the operators of the first one
// bind loosest.

/// One expression, or several separated by commas: a tuple.
ExpressionPtr Parser::parseTuple() {
  const int line = peek().line;
  ExpressionPtr first = parseExpression();
  if (!isOperator(","))
    return first;
  ExpressionPtr tuple = make(Expression::Tuple, line);
  add(*tuple, std::move(first));
  while (takeOperator(",")) {
    if (peek().kind == Token::VariableEnd || peek().kind == Token::BlockEnd)
      break;
    add(*tuple, parseExpression());
  }
  return tuple;
}

ExpressionPtr Parser::parseExpression() {
  const Nesting guard(*this);
  ExpressionPtr value = parseOr();
  while (isName("if")) {
    ExpressionPtr node = make(Expression::Conditional, next().line);
    add(*node, std::move(value));
    add(*node, parseOr());
    add(*node, takeName("else") ? parseExpression() : nullptr);
    value = std::move(node);
  }
  return value;
}

ExpressionPtr Parser::parseOr() {
  ExpressionPtr left = parseAnd();
  if (!isName("or"))
    return left;
  ExpressionPtr node = make(Expression::Or, peek().line);
  add(*node, std::move(left));
  while (takeName("or"))
    add(*node, parseAnd());
  return node;
}

ExpressionPtr Parser::parseAnd() {
  ExpressionPtr left = parseNot();
  if (!isName("and"))
    return left;
  ExpressionPtr node = make(Expression::And, peek().line);
  add(*node, std::move(left));
  while (takeName("and"))
    add(*node, parseNot());
  return node;
}

ExpressionPtr Parser::parseNot() {
  if (!isName("not"))
    return parseComparison();
  const Nesting guard(*this);
  ExpressionPtr node = make(Expression::Not, next().line);
  add(*node, parseNot());
  return node;
}

ExpressionPtr Parser::parseComparison() {
  ExpressionPtr left = parseSum();
  ExpressionPtr node;
  for (;;) {
    std::string comparison;
    const int line = peek().line;
    if (peek().kind == Token::Operator) {
      for (const char *symbol : {"==", "!=", "<", "<=", ">", ">="})
        if (isOperator(symbol))
          comparison = symbol;
    } else if (isName("in")) {
      comparison = "in";
    } else if (isName("not") && peek(1).kind == Token::Name &&
               peek(1).text == "in") {
      comparison = "not in";
      next();
    }
    if (comparison.empty())
      return node ? std::move(node) : std::move(left);
    next();
    if (!node) {
      node = make(Expression::Compare, line);
      add(*node, std::move(left));
    }
    node->operators.push_back(std::move(comparison));
    add(*node, parseSum());
  }
}

ExpressionPtr Parser::parseSum() {
  ExpressionPtr left = parseConcat();
  while (isOperator("+") || isOperator("-")) {
    ExpressionPtr node = make(Expression::Binary, peek().line);
    node->name = next().text;
    add(*node, std::move(left));
    add(*node, parseConcat());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr Parser::parseConcat() {
  ExpressionPtr left = parseProduct();
  if (!isOperator("~"))
    return left;
  ExpressionPtr node = make(Expression::Concat, peek().line);
  add(*node, std::move(left));
  while (takeOperator("~"))
    add(*node, parseProduct());
  return node;
}

ExpressionPtr Parser::parseProduct() {
  ExpressionPtr left = parsePower();
  while (isOperator("*") || isOperator("/") || isOperator("//") ||
         isOperator("%")) {
    ExpressionPtr node = make(Expression::Binary, peek().line);
    node->name = next().text;
    add(*node, std::move(left));
    add(*node, parsePower());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr Parser::parsePower() {
  ExpressionPtr left = parseUnary();
  while (isOperator("**")) {
    ExpressionPtr node = make(Expression::Binary, peek().line);
    node->name = next().text;
    add(*node, std::move(left));
    add(*node, parseUnary());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr Parser::parseUnary(bool withFilters) {
  const Nesting guard(*this);
  ExpressionPtr node;
  if (isOperator("-") || isOperator("+")) {
    const Token &sign = next();
    node = make(sign.text == "-" ? Expression::Negative : Expression::Positive,
                sign.line);
    add(*node, parseUnary(false));
  } else {
    node = parsePrimary();
  }
  node = parsePostfix(std::move(node));
  return withFilters ? parseFilters(std::move(node)) : std::move(node);
}

static ExpressionPtr withConstant(ExpressionPtr node, Value value) {
  node->constant = std::move(value);
  return node;
}

ExpressionPtr Parser::parsePrimary() {
  const int line = peek().line;
  if (takeOperator("("))
    return parseItems(Expression::Tuple, ")");
  if (takeOperator("["))
    return parseItems(Expression::List, "]");
  if (takeOperator("{"))
    return parseItems(Expression::Dict, "}");
  ExpressionPtr node = make(Expression::Constant, line);
  switch (peek().kind) {
  case Token::Name: {
    const std::string name = next().text;
    if (name == "true" || name == "True")
      return withConstant(std::move(node), true);
    if (name == "false" || name == "False")
      return withConstant(std::move(node), false);
    if (name == "none" || name == "None")
      return withConstant(std::move(node), Value());
    node->kind = Expression::Name;
    node->name = name;
    return node;
  }
  case Token::String: {
    std::string text;
    while (peek().kind == Token::String)
      text += next().text;
    return withConstant(std::move(node),
                        MarkedText(std::move(text), Origin::Template));
  }
  case Token::Integer: {
    const std::string digits = next().text;
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value)
            .ec != std::errc())
      failAt(line, "the number " + digits.substr(0, 40) + " is too large");
    return withConstant(std::move(node), value);
  }
  case Token::Float: {
    const std::string digits = next().text;
    double value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value)
            .ec != std::errc())
      failAt(line, "the number " + digits.substr(0, 40) + " is out of range");
    return withConstant(std::move(node), value);
  }
  default:
    fail("expected an expression");
  }
}

/// The contents of brackets: a list, a dict, a tuple or, without a comma, a
/// single item.
ExpressionPtr Parser::parseItems(Expression::Kind kind, const char *close) {
  ExpressionPtr node = make(kind, peek().line);
  bool hasComma = false;
  while (!takeOperator(close)) {
    if (!node->operands.empty()) {
      expectOperator(",");
      hasComma = true;
      if (takeOperator(close))
        break;
    }
    add(*node, parseExpression());
    if (kind == Expression::Dict) {
      expectOperator(":");
      add(*node, parseExpression());
    }
  }
  if (kind == Expression::Tuple && node->operands.size() == 1 && !hasComma)
    return std::move(node->operands[0]);
  return node;
}

ExpressionPtr Parser::parsePostfix(ExpressionPtr node) {
  for (;;) {
    const int line = peek().line;
    if (takeOperator(".")) {
      ExpressionPtr access = make(Expression::Attribute, line);
      if (peek().kind == Token::Integer) {
        access->kind = Expression::Item;
        add(*access, std::move(node));
        add(*access, parsePrimary());
      } else {
        access->name = takeAnyName("the name of an attribute");
        add(*access, std::move(node));
      }
      node = std::move(access);
    } else if (takeOperator("[")) {
      node = parseSubscript(std::move(node));
    } else if (isOperator("(")) {
      ExpressionPtr call = make(Expression::Call, line);
      add(*call, std::move(node));
      parseArguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parseSubscript(ExpressionPtr object) {
  ExpressionPtr node = make(Expression::Item, peek().line);
  add(*node, std::move(object));
  const auto isPartEnd = [&] { return isOperator(":") || isOperator("]"); };
  ExpressionPtr first = isPartEnd() ? nullptr : parseExpression();
  if (takeOperator("]")) {
    if (!first)
      failAt(node->line, "the index is missing");
    add(*node, std::move(first));
    return node;
  }
  node->kind = Expression::Slice;
  add(*node, std::move(first));
  for (int part = 0; part < 2; ++part) {
    const bool hasPart = takeOperator(":") && !isPartEnd();
    add(*node, hasPart ? parseExpression() : nullptr);
  }
  expectOperator("]");
  return node;
}

void Parser::parseArguments(Expression &call) {
  expectOperator("(");
  bool isFirst = true;
  while (!takeOperator(")")) {
    if (!isFirst) {
      expectOperator(",");
      if (takeOperator(")"))
        return;
    }
    isFirst = false;
    if (isOperator("*") || isOperator("**"))
      fail("arguments by '*' are not supported: expected an expression");
    if (peek().kind == Token::Name && peek(1).kind == Token::Operator &&
        peek(1).text == "=") {
      std::string name = next().text;
      next();
      ExpressionPtr value = parseExpression();
      deepen(call, *value);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.named.empty())
        fail("expected a named argument");
      add(call, parseExpression());
    }
  }
}

ExpressionPtr Parser::parseFilters(ExpressionPtr node) {
  for (;;) {
    if (takeOperator("|")) {
      node = parseFilter(std::move(node));
    } else if (node && takeName("is")) {
      node = parseTest(std::move(node));
    } else if (node && isOperator("(")) {
      ExpressionPtr call = make(Expression::Call, peek().line);
      add(*call, std::move(node));
      parseArguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

/// A filter's name and arguments.
ExpressionPtr Parser::parseFilter(ExpressionPtr input) {
  ExpressionPtr node = make(Expression::Filter, peek().line);
  node->name = takeAnyName("the name of a filter");
  add(*node, std::move(input));
  if (isOperator("("))
    parseArguments(*node);
  return node;
}

ExpressionPtr Parser::parseTest(ExpressionPtr input) {
  const int line = peek().line;
  const bool isNegated = takeName("not");
  ExpressionPtr node = make(Expression::Test, line);
  node->name = takeAnyName("the name of a test");
  add(*node, std::move(input));
  const Token &token = peek();
  if (isOperator("(")) {
    parseArguments(*node);
  } else if ((token.kind == Token::Name && token.text != "else" &&
              token.text != "or" && token.text != "and" && token.text != "if" &&
              token.text != "in" && token.text != "not" && token.text != "is" &&
              token.text != "recursive") ||
             token.kind == Token::String || token.kind == Token::Integer ||
             token.kind == Token::Float || isOperator("[") || isOperator("{")) {
    add(*node, parsePostfix(parsePrimary()));
  }
  if (!isNegated)
    return node;
  ExpressionPtr negation = make(Expression::Not, line);
  add(*negation, std::move(node));
  return negation;
}
