//===- JinjaSyntax.h - The syntax tree of a template ------------*- C++ -*-===//
//
// Tokens, expressions and statements of Jinja, and the functions that make them
// from text.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_JINJA_JINJASYNTAX_H
#define QWEN_RUNTIME_JINJA_JINJASYNTAX_H

#include "jinja/JinjaValue.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qwen::jinja {

/// Throws the Error of a template: "chat template, line 3: what".
[[noreturn]] void failAt(int line, const std::string &what);

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

struct Token {
  enum Kind : uint8_t {
    Text,
    BlockBegin,
    BlockEnd,
    VariableBegin,
    VariableEnd,
    Name,
    String,
    Integer,
    Float,
    Operator,
    End,
  };
  Kind kind;
  int line;
  /// The text; of strings, without quotes and escapes.
  std::string text;
};

/// Splits a template into tokens. Removes blanks and newlines around tags like
/// trim_blocks and lstrip_blocks. Throws Error.
std::vector<Token> tokenize(std::string_view source);

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum Kind : uint8_t {
    /// `constant`
    Constant,
    /// `name`
    Name,
    /// items
    List,
    Tuple,
    /// key, value, key, ...
    Dict,
    /// object; `name`
    Attribute,
    /// object, index
    Item,
    /// object, start, stop, step (each may be null)
    Slice,
    /// callee, arguments...; `named`
    Call,
    /// input (null in a filter block), arguments...; `name`, `named`
    Filter,
    /// input, arguments...; `name`, `named`
    Test,
    Not,
    Negative,
    Positive,
    And,
    Or,
    /// parts, joined as text
    Concat,
    /// left, right; `name` is the operator
    Binary,
    /// operands; `operators` between them
    Compare,
    /// value, condition, other value (may be null)
    Conditional,
  };
  Kind kind;
  int line;
  /// Depth of the expression tree, this node included.
  int depth = 1;
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum Kind : uint8_t {
    /// `name` is the text
    Text,
    /// expression
    Output,
    /// conditions; a body for each, and one more for else
    If,
    /// iterable, condition (may be null); body and else's body; `targets`
    For,
    /// value; `targets`, or one with `attribute`
    Set,
    /// filter (may be null); body; one of `targets`, perhaps with `attribute`
    SetBlock,
    /// `name`, `targets` are the parameters, expressions the defaults of the
    /// last ones; body
    Macro,
    /// call, defaults...; body; `targets` are the parameters
    CallBlock,
    /// filter; body
    FilterBlock,
    /// values; `targets`; body
    With,
    Break,
    Continue,
    /// body
    Group,
  };
  Kind kind;
  int line;
  /// For: the loop may call itself.
  bool isRecursive = false;
  std::string name;
  std::string attribute;
  std::vector<std::string> targets;
  std::vector<ExpressionPtr> expressions;
  std::vector<Body> bodies;
};

struct Template {
  Body body;
};

/// Throws Error if `source` is not a template or uses something that is not
/// supported.
Template parseTemplate(std::string_view source);

} // namespace qwen::jinja

#endif // QWEN_RUNTIME_JINJA_JINJASYNTAX_H
