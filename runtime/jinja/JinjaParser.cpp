//===- JinjaParser.cpp - From tokens to statements ------------------------===//

#include "jinja/JinjaParser.h"

using namespace qwen;
using namespace qwen::jinja;

void Parser::fail(const std::string &what) const {
  const Token &token = peek();
  std::string found;
  switch (token.kind) {
  case Token::End:
    found = "the end";
    break;
  case Token::Text:
    found = "text";
    break;
  case Token::BlockBegin:
  case Token::VariableBegin:
    found = "a tag";
    break;
  case Token::BlockEnd:
  case Token::VariableEnd:
    found = "the end of the tag";
    break;
  case Token::String:
    found = "a string";
    break;
  default:
    found = "'" + token.text + "'";
  }
  failAt(token.line, what + ", found " + found);
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

/// Parses statements up to a tag whose name is in `ends`, or to the end of the
/// template if `ends` is empty. Takes that name and stores it in `end`.
Body Parser::parseBody(std::initializer_list<std::string_view> ends,
                       std::string &end) {
  const Nesting guard(*this);
  const int begin = peek().line;
  Body body;
  for (;;) {
    const Token &token = next();
    switch (token.kind) {
    case Token::Text: {
      Statement statement{};
      statement.kind = Statement::Text;
      statement.line = token.line;
      statement.name = token.text;
      body.push_back(std::move(statement));
      break;
    }
    case Token::VariableBegin: {
      Statement statement{};
      statement.kind = Statement::Output;
      statement.line = token.line;
      statement.expressions.push_back(parseTuple());
      if (peek().kind != Token::VariableEnd)
        fail("expected the end of the expression");
      next();
      body.push_back(std::move(statement));
      break;
    }
    case Token::BlockBegin:
      if (peek().kind == Token::Name &&
          std::ranges::find(ends, peek().text) != ends.end()) {
        end = next().text;
        return body;
      }
      parseStatement(body);
      break;
    default:
      if (ends.size() != 0)
        failAt(begin, "no '" + std::string(*(ends.end() - 1)) +
                          "' ends what begins here");
      return body;
    }
  }
}

Body Parser::parseBodyTo(std::string_view end) {
  std::string found;
  Body body = parseBody({end}, found);
  endBlock();
  return body;
}

void Parser::parseStatement(Body &body) {
  const int line = peek().line;
  const std::string name = takeAnyName("the name of a tag");
  Statement statement{};
  if (name == "if") {
    statement = parseIf();
  } else if (name == "for") {
    statement = parseFor();
  } else if (name == "set") {
    statement = parseSet();
  } else if (name == "macro") {
    statement = parseMacro();
  } else if (name == "call") {
    statement = parseCallBlock();
  } else if (name == "filter") {
    statement = parseFilterBlock();
  } else if (name == "with") {
    statement = parseWith();
  } else if (name == "break" || name == "continue") {
    if (loops == 0)
      failAt(line, "'" + name + "' outside of a loop");
    statement.kind = name == "break" ? Statement::Break : Statement::Continue;
    endBlock();
  } else if (name == "generation") {
    statement.kind = Statement::Group;
    endBlock();
    statement.bodies.push_back(parseBodyTo("endgeneration"));
  } else {
    failAt(line, "the tag '" + name + "' is not supported");
  }
  statement.line = line;
  body.push_back(std::move(statement));
}

Statement Parser::parseIf() {
  Statement statement{};
  statement.kind = Statement::If;
  std::string end = "elif";
  while (end == "elif") {
    statement.expressions.push_back(parseTuple());
    endBlock();
    statement.bodies.push_back(parseBody({"elif", "else", "endif"}, end));
  }
  if (end == "else") {
    endBlock();
    statement.bodies.push_back(parseBodyTo("endif"));
  } else {
    endBlock();
  }
  return statement;
}

std::string Parser::parseTarget() {
  const int line = peek().line;
  std::string name = takeAnyName("a name to set");
  for (const char *constant :
       {"true", "false", "none", "True", "False", "None"})
    if (name == constant)
      failAt(line, "cannot set '" + name + "'");
  return name;
}

/// One name or several, separated by commas, with optional parentheses.
std::vector<std::string> Parser::parseTargets() {
  const bool isEnclosed = takeOperator("(");
  std::vector<std::string> targets = {parseTarget()};
  while (takeOperator(",")) {
    if (isName("in") || isOperator(")") || isOperator("="))
      break;
    targets.push_back(parseTarget());
  }
  if (isEnclosed)
    expectOperator(")");
  return targets;
}

Statement Parser::parseFor() {
  Statement statement{};
  statement.kind = Statement::For;
  const int line = peek().line;
  statement.targets = parseTargets();
  if (std::ranges::find(statement.targets, "loop") != statement.targets.end())
    failAt(line, "a loop cannot set 'loop'");
  expectName("in");
  // Not parseExpression, because `if` belongs to the loop.
  ExpressionPtr iterable = parseOr();
  if (isOperator(",")) {
    ExpressionPtr tuple = make(Expression::Tuple, line);
    add(*tuple, std::move(iterable));
    while (takeOperator(","))
      add(*tuple, parseOr());
    iterable = std::move(tuple);
  }
  statement.expressions.push_back(std::move(iterable));
  statement.expressions.push_back(takeName("if") ? parseExpression() : nullptr);
  statement.isRecursive = takeName("recursive");
  endBlock();
  std::string end;
  ++loops;
  statement.bodies.push_back(parseBody({"else", "endfor"}, end));
  --loops;
  endBlock();
  statement.bodies.push_back(end == "else" ? parseBodyTo("endfor") : Body());
  return statement;
}

Statement Parser::parseSet() {
  Statement statement{};
  statement.kind = Statement::Set;
  statement.targets = parseTargets();
  if (statement.targets.size() == 1 && takeOperator("."))
    statement.attribute = takeAnyName("the name of an attribute");
  if (takeOperator("=")) {
    statement.expressions.push_back(parseTuple());
    endBlock();
    return statement;
  }
  if (statement.targets.size() != 1)
    fail("expected '='");
  statement.kind = Statement::SetBlock;
  ExpressionPtr filter;
  if (isOperator("|"))
    filter = parseFilters(nullptr);
  statement.expressions.push_back(std::move(filter));
  endBlock();
  statement.bodies.push_back(parseBodyTo("endset"));
  return statement;
}

/// Appends the parameters "(a, b=1)" to the targets and expressions.
void Parser::parseParameters(Statement &statement) {
  expectOperator("(");
  bool hasDefaults = false;
  while (!takeOperator(")")) {
    if (!statement.targets.empty())
      expectOperator(",");
    statement.targets.push_back(parseTarget());
    if (takeOperator("=")) {
      statement.expressions.push_back(parseExpression());
      hasDefaults = true;
    } else if (hasDefaults) {
      fail("expected a default, as the parameter before has one");
    }
  }
}

Statement Parser::parseMacro() {
  Statement statement{};
  statement.kind = Statement::Macro;
  statement.name = parseTarget();
  parseParameters(statement);
  endBlock();
  const int outerLoops = std::exchange(loops, 0);
  statement.bodies.push_back(parseBodyTo("endmacro"));
  loops = outerLoops;
  return statement;
}

Statement Parser::parseCallBlock() {
  Statement statement{};
  statement.kind = Statement::CallBlock;
  statement.name = "caller";
  statement.expressions.push_back(nullptr);
  if (isOperator("("))
    parseParameters(statement);
  statement.expressions[0] = parseExpression();
  if (statement.expressions[0]->kind != Expression::Call)
    fail("expected a call");
  endBlock();
  const int outerLoops = std::exchange(loops, 0);
  statement.bodies.push_back(parseBodyTo("endcall"));
  loops = outerLoops;
  return statement;
}

Statement Parser::parseFilterBlock() {
  Statement statement{};
  statement.kind = Statement::FilterBlock;
  ExpressionPtr filter = parseFilter(nullptr);
  statement.expressions.push_back(
      isOperator("|") ? parseFilters(std::move(filter)) : std::move(filter));
  endBlock();
  statement.bodies.push_back(parseBodyTo("endfilter"));
  return statement;
}

Statement Parser::parseWith() {
  Statement statement{};
  statement.kind = Statement::With;
  while (peek().kind != Token::BlockEnd) {
    if (!statement.targets.empty())
      expectOperator(",");
    statement.targets.push_back(parseTarget());
    expectOperator("=");
    statement.expressions.push_back(parseExpression());
  }
  endBlock();
  statement.bodies.push_back(parseBodyTo("endwith"));
  return statement;
}

Template jinja::parseTemplate(std::string_view source) {
  return {Parser(source).parseAll()};
}
