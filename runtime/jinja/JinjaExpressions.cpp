//===- JinjaExpressions.cpp - Expressions of a template -------------------===//

#include "jinja/JinjaBuiltins.h"
#include "jinja/JinjaInterpreter.h"
#include "text/Unicode.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace qwen;
using namespace qwen::jinja;

//===----------------------------------------------------------------------===//
// Access
//===----------------------------------------------------------------------===//

std::vector<Value> Interpreter::iterate(const Value &value) {
  std::vector<Value> items;
  if (const ListData *list = value.list()) {
    charge(4 * list->items.size());
    return list->items;
  }
  if (const DictData *dict = value.dict()) {
    for (const auto &[name, member] : dict->items)
      items.push_back(makeString(name));
  } else if (const Sequence sequence = sequenceOf(value); sequence.text) {
    for (int64_t i = 0; i < sequence.size(); ++i)
      items.push_back(makeString(sequence.text->part(sequence.character(i))));
  } else if (!value.isUndefined()) {
    throw Failure{"cannot loop over a " + std::string(value.typeName())};
  }
  return items;
}

const Value *Interpreter::find(const DictData &dict, std::string_view key) {
  charge(dict.items.size() * (1 + key.size() / 16));
  return dict.find(key);
}

void Interpreter::setItem(DictItems &items, const MarkedText &key,
                          Value value) {
  charge((1 + items.size()) * (4 + key.bytes().size() / 16));
  const auto found = std::ranges::find_if(items, [&](const auto &item) {
    return item.first.bytes() == key.bytes();
  });
  if (found == items.end())
    items.emplace_back(key, std::move(value));
  else
    found->second = std::move(value);
}

Value Interpreter::attribute(const Value &object, std::string_view name) {
  charge(name.size() / 4);
  if (object.isUndefined())
    throw Failure{object.undefinedHint() + ", so it has no '" +
                  std::string(name) + "'"};
  if (const DictData *dict = object.dict()) {
    if (const Value *found = find(*dict, name))
      return *found;
  } else if (Object *other = object.object()) {
    if (std::optional<Value> found = other->attribute(*this, name))
      return *found;
  }
  return Value::undefined("a " + std::string(object.typeName()) + " has no '" +
                          std::string(name) + "'");
}

Sequence Interpreter::sequenceOf(const Value &object) {
  Sequence sequence = {object.string(), {}, object.list()};
  if (sequence.text) {
    const std::string_view bytes = sequence.text->bytes();
    charge(2 * bytes.size());
    for (size_t i = 0; i < bytes.size();
         i += decodeUtf8(bytes.substr(i)).length)
      sequence.starts.push_back(uint32_t(i));
    sequence.starts.push_back(uint32_t(bytes.size()));
  }
  return sequence;
}

Value Interpreter::item(const Value &object, const Value &index) {
  if (index.isString())
    return attribute(object, index.string()->bytes());
  if (object.isUndefined())
    throw Failure{object.undefinedHint() + ", so it has no items"};
  const std::optional<int64_t> number = index.integer();
  if (number && (object.isList() || object.isString())) {
    const Sequence sequence = sequenceOf(object);
    const int64_t at = *number < 0 ? *number + sequence.size() : *number;
    if (at >= 0 && at < sequence.size())
      return sequence.text
                 ? makeString(sequence.text->part(sequence.character(at)))
                 : sequence.list->items[size_t(at)];
  }
  charge(index.weight());
  return Value::undefined("a " + std::string(object.typeName()) +
                          " has no item " +
                          toText(index).bytes().substr(0, 40));
}

Value Interpreter::call(const Value &callee, const Arguments &arguments) {
  if (callee.isUndefined())
    throw Failure{callee.undefinedHint() + ", so it cannot be called"};
  if (Object *object = callee.object())
    return object->call(*this, arguments);
  throw Failure{"a " + std::string(callee.typeName()) + " cannot be called"};
}

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

namespace {
/// One level of expressions. The parser limits their depth; the calls in them
/// check the sum.
struct Level {
  explicit Level(int &counter) : levels(counter) { ++levels; }
  ~Level() { --levels; }
  int &levels;
};
} // namespace

Value Interpreter::evaluateItems(const Expression &node, Scope *scope) {
  if (node.kind != Expression::Dict) {
    std::vector<Value> items;
    items.reserve(node.operands.size());
    for (const ExpressionPtr &part : node.operands)
      items.push_back(evaluate(*part, scope));
    return makeList(std::move(items), node.kind == Expression::Tuple);
  }
  DictItems items;
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    const Value key = evaluate(*node.operands[i], scope);
    if (!key.isString())
      throw Failure{"the key of a dict is a " + std::string(key.typeName()) +
                    " where a string is needed"};
    setItem(items, *key.string(), evaluate(*node.operands[i + 1], scope));
  }
  return makeDict(std::move(items));
}

Value Interpreter::evaluateConcat(const Expression &node, Scope *scope) {
  MarkedText text;
  for (const ExpressionPtr &part : node.operands) {
    const Value value = evaluate(*part, scope);
    charge(value.weight());
    text.append(toText(value));
  }
  return makeString(std::move(text));
}

/// -value or +value.
static Value withSign(const Value &value, bool isNegative) {
  if (const std::optional<int64_t> number = value.integer();
      number && *number != std::numeric_limits<int64_t>::min())
    return isNegative ? -*number : *number;
  if (value.isFloat())
    return isNegative ? -value.number() : value.number();
  throw Failure{"a " + std::string(value.typeName()) + " has no sign"};
}

Value Interpreter::evaluate(const Expression &node, Scope *scope) {
  const Level guard(nesting);
  charge(kStep);
  line = node.line;
  const auto operand = [&](size_t i) {
    return evaluate(*node.operands[i], scope);
  };
  switch (node.kind) {
  case Expression::Constant:
    return node.constant;
  case Expression::Name:
    return evaluateName(node, scope);
  case Expression::List:
  case Expression::Tuple:
  case Expression::Dict:
    return evaluateItems(node, scope);
  case Expression::Attribute:
    return attribute(operand(0), node.name);
  case Expression::Item: {
    const Value object = operand(0);
    return item(object, operand(1));
  }
  case Expression::Slice:
    return evaluateSlice(node, scope);
  case Expression::Call:
    return evaluateCall(node, scope);
  case Expression::Filter:
    return evaluateFilter(node, scope, nullptr);
  case Expression::Test:
    return evaluateTest(node, scope);
  case Expression::Not:
    return !operand(0).isTrue();
  case Expression::Negative:
  case Expression::Positive:
    return withSign(operand(0), node.kind == Expression::Negative);
  case Expression::And:
  case Expression::Or:
    return evaluateLogical(node, scope);
  case Expression::Concat:
    return evaluateConcat(node, scope);
  case Expression::Binary:
    return evaluateBinary(node, scope);
  case Expression::Compare:
    return evaluateCompare(node, scope);
  case Expression::Conditional:
    if (operand(1).isTrue())
      return operand(0);
    if (node.operands[2])
      return operand(2);
    return Value::undefined("an 'if' without 'else' is undefined");
  }
  return Value();
}

Value Interpreter::evaluateTest(const Expression &node, Scope *scope) {
  const Value input = evaluate(*node.operands[0], scope);
  const Arguments arguments = evaluateArguments(node, scope);
  line = node.line;
  return applyTest(*this, node.name, input, arguments);
}

Value Interpreter::evaluateLogical(const Expression &node, Scope *scope) {
  // As in Python, the result is the last evaluated operand.
  Value value;
  for (const ExpressionPtr &part : node.operands) {
    value = evaluate(*part, scope);
    if (value.isTrue() == (node.kind == Expression::Or))
      break;
  }
  return value;
}

Value Interpreter::evaluateName(const Expression &node, Scope *scope) {
  for (const Scope *at = scope; at; at = at->parent) {
    charge(kStep / 2 + node.name.size() / 4);
    if (const auto found = at->names.find(node.name); found != at->names.end())
      return found->second;
  }
  return Value::undefined("'" + node.name + "' is undefined");
}

Arguments Interpreter::evaluateArguments(const Expression &node, Scope *scope) {
  Arguments arguments;
  for (size_t i = 1; i < node.operands.size(); ++i)
    arguments.positional.push_back(evaluate(*node.operands[i], scope));
  for (const auto &[name, value] : node.named)
    arguments.named.emplace_back(name, evaluate(*value, scope));
  return arguments;
}

Value Interpreter::evaluateCall(const Expression &node, Scope *scope) {
  const Expression &callee = *node.operands[0];
  if (callee.kind == Expression::Attribute) {
    const Value object = evaluate(*callee.operands[0], scope);
    const Arguments arguments = evaluateArguments(node, scope);
    line = node.line;
    if (std::optional<Value> result =
            callMethod(*this, object, callee.name, arguments))
      return *result;
    return call(attribute(object, callee.name), arguments);
  }
  const Value function = evaluate(callee, scope);
  const Arguments arguments = evaluateArguments(node, scope);
  line = node.line;
  if (function.isUndefined() && callee.kind == Expression::Name)
    if (std::optional<Value> result =
            callFunction(*this, callee.name, arguments))
      return *result;
  return call(function, arguments);
}

/// `input` is the filtered value if the expression does not have it.
Value Interpreter::evaluateFilter(const Expression &node, Scope *scope,
                                  const Value *input) {
  const Level guard(nesting);
  const ExpressionPtr &inner = node.operands[0];
  Value value = !inner ? *input
                : input && inner->kind == node.kind
                    ? evaluateFilter(*inner, scope, input)
                    : evaluate(*inner, scope);
  const Arguments arguments = evaluateArguments(node, scope);
  line = node.line;
  return applyFilter(*this, node.name, value, arguments);
}

Value Interpreter::evaluateSlice(const Expression &node, Scope *scope) {
  const Value object = evaluate(*node.operands[0], scope);
  if (!object.isList() && !object.isString())
    throw Failure{"cannot take a part of a " + std::string(object.typeName())};
  const Sequence sequence = sequenceOf(object);
  const int64_t size = sequence.size();
  const auto bound = [&](size_t part) -> std::optional<int64_t> {
    if (!node.operands[part])
      return std::nullopt;
    const Value value = evaluate(*node.operands[part], scope);
    if (value.isNone())
      return std::nullopt;
    if (!value.integer())
      throw Failure{"the bound of a part is a " +
                    std::string(value.typeName()) + " where an int is needed"};
    return value.integer();
  };
  const std::optional<int64_t> first = bound(1), last = bound(2);
  const int64_t step = bound(3).value_or(1);
  if (step == 0)
    throw Failure{"the step of a part is 0"};
  // As in Python, negative bounds count from the end, and all are clamped.
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
  const auto clamp = [&](std::optional<int64_t> value, int64_t byDefault) {
    if (!value)
      return byDefault;
    return std::clamp(*value < 0 ? *value + size : *value, least, most);
  };
  const int64_t begin = clamp(first, step > 0 ? 0 : size - 1);
  const int64_t end = clamp(last, step > 0 ? size : -1);
  MarkedText text;
  std::vector<Value> items;
  // Steps past the ends would overflow.
  const int64_t stride = std::clamp(step, -size - 1, size + 1);
  for (int64_t i = begin; stride > 0 ? i < end : i > end; i += stride)
    if (sequence.text)
      text.append(*sequence.text, sequence.character(i));
    else
      items.push_back(sequence.list->items[size_t(i)]);
  return sequence.text ? makeString(std::move(text))
                       : makeList(std::move(items), sequence.list->isTuple);
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

static int64_t checked(bool overflows, int64_t value) {
  if (overflows)
    throw Failure{"a number is too large"};
  return value;
}

static int64_t floorDivide(int64_t a, int64_t b) {
  if (b == -1)
    return checked(a == std::numeric_limits<int64_t>::min(), -a);
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1 || base == -1)
    return exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base;
  for (; exponent > 0; --exponent) {
    int64_t next = 0;
    const bool overflows = __builtin_mul_overflow(result, base, &next);
    result = checked(overflows, next);
  }
  return result;
}

static Value integerResult(const std::string &op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    const bool overflows = __builtin_add_overflow(a, b, &result);
    return checked(overflows, result);
  }
  if (op == "-") {
    const bool overflows = __builtin_sub_overflow(a, b, &result);
    return checked(overflows, result);
  }
  if (op == "*") {
    const bool overflows = __builtin_mul_overflow(a, b, &result);
    return checked(overflows, result);
  }
  if (op == "**")
    return b >= 0 ? Value(power(a, b)) : Value(std::pow(double(a), double(b)));
  if (b == 0)
    throw Failure{"division by zero"};
  if (op == "/")
    return double(a) / double(b);
  const int64_t quotient = floorDivide(a, b);
  return op == "//" ? quotient : b == -1 ? int64_t(0) : a - quotient * b;
}

static Value floatResult(const std::string &op, double a, double b) {
  if (op == "+")
    return a + b;
  if (op == "-")
    return a - b;
  if (op == "*")
    return a * b;
  if (op == "**")
    return std::pow(a, b);
  if (b == 0)
    throw Failure{"division by zero"};
  if (op == "/")
    return a / b;
  return op == "//" ? std::floor(a / b) : a - b * std::floor(a / b);
}

Value Interpreter::evaluateBinary(const Expression &node, Scope *scope) {
  Value a = evaluate(*node.operands[0], scope);
  Value b = evaluate(*node.operands[1], scope);
  line = node.line;
  const std::string &op = node.name;
  if (op == "*" && a.integer() && (b.isString() || b.isList()))
    std::swap(a, b);
  for (const Value *value : {&a, &b})
    if (value->isUndefined())
      throw Failure{value->undefinedHint() +
                    ", so it cannot be an operand of '" + op + "'"};
  const std::optional<int64_t> left = a.integer(), right = b.integer();
  if (left && right)
    return integerResult(op, *left, *right);
  if (a.isNumber() && b.isNumber())
    return floatResult(op, a.number(), b.number());
  if (op == "+" && a.isString() && b.isString()) {
    charge(a.weight() + b.weight());
    MarkedText text = *a.string();
    text.append(*b.string());
    return makeString(std::move(text));
  }
  if (op == "+" && a.isList() && b.isList()) {
    std::vector<Value> items = iterate(a);
    const std::vector<Value> more = iterate(b);
    items.insert(items.end(), more.begin(), more.end());
    return makeList(std::move(items), a.list()->isTuple);
  }
  if (op == "*" && (a.isString() || a.isList()) && right) {
    const auto count = uint64_t(std::max<int64_t>(*right, 0));
    const uint64_t size =
        a.isString() ? a.string()->memory() : 32 * a.list()->items.size();
    if (size == 0 || count == 0)
      return a.isString() ? makeString({}) : makeList({});
    // Charged before the result is made. The first charge ensures that the
    // product does not overflow.
    charge(count);
    charge(count * size);
    if (a.isString()) {
      MarkedText text;
      for (uint64_t i = 0; i < count; ++i)
        text.append(*a.string());
      return makeString(std::move(text));
    }
    std::vector<Value> items;
    for (uint64_t i = 0; i < count; ++i)
      items.insert(items.end(), a.list()->items.begin(), a.list()->items.end());
    return makeList(std::move(items), a.list()->isTuple);
  }
  throw Failure{"'" + op + "' of a " + std::string(a.typeName()) + " and a " +
                std::string(b.typeName()) + " is not supported"};
}

bool Interpreter::contains(const Value &container, const Value &value) {
  if (const MarkedText *text = container.string()) {
    if (!value.isString())
      throw Failure{"a string contains strings and no " +
                    std::string(value.typeName())};
    return TextSearch<false>(value.string()->bytes()).find(text->bytes()) !=
           std::string::npos;
  }
  if (const DictData *dict = container.dict()) {
    return value.isString() && find(*dict, value.string()->bytes());
  }
  if (const ListData *list = container.list()) {
    return std::ranges::any_of(
        list->items, [&](const Value &item) { return equal(item, value); });
  }
  if (container.isUndefined())
    return false;
  throw Failure{"a " + std::string(container.typeName()) + " contains nothing"};
}

Value Interpreter::evaluateCompare(const Expression &node, Scope *scope) {
  Value left = evaluate(*node.operands[0], scope);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    const Value right = evaluate(*node.operands[i + 1], scope);
    line = node.line;
    charge(left.weight() + right.weight());
    const std::string &op = node.operators[i];
    const bool holds = op == "=="   ? equal(left, right)
                       : op == "!=" ? !equal(left, right)
                       : op == "<"  ? less(left, right)
                       : op == ">"  ? less(right, left)
                       : op == "<=" ? !less(right, left)
                       : op == ">=" ? !less(left, right)
                       : op == "in" ? contains(right, left)
                                    : !contains(right, left);
    if (!holds)
      return false;
    left = right;
  }
  return true;
}
