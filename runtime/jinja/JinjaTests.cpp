//===- JinjaTests.cpp - Tests of values -----------------------------------===//
//
// The tests of the operator "is": `messages is defined`.
//
//===----------------------------------------------------------------------===//

#include "jinja/JinjaBuiltins.h"
#include "jinja/JinjaInterpreter.h"

#include <algorithm>
#include <iterator>
#include <utility>

using namespace qwen;
using namespace qwen::jinja;

using Test = bool (*)(const Value &, const ArgumentReader &);

static bool isIterable(const Value &value) {
  return value.isString() || value.isList() || value.isDict() ||
         value.isUndefined();
}

static std::optional<int64_t> remainder(const Value &value, int64_t divisor) {
  if (!value.integer() || divisor == 0 || divisor == -1)
    return std::nullopt;
  return *value.integer() % divisor;
}

static bool equalTo(const Value &value, const ArgumentReader &arguments) {
  return equal(value, arguments.need(0, "other"));
}

static bool lessThan(const Value &value, const ArgumentReader &arguments) {
  return less(value, arguments.need(0, "other"));
}

static bool greaterThan(const Value &value, const ArgumentReader &arguments) {
  return less(arguments.need(0, "other"), value);
}

static constexpr std::pair<std::string_view, Test> kTests[] = {
    {"defined",
     [](const Value &v, const ArgumentReader &) { return !v.isUndefined(); }},
    {"undefined",
     [](const Value &v, const ArgumentReader &) { return v.isUndefined(); }},
    {"none", [](const Value &v, const ArgumentReader &) { return v.isNone(); }},
    {"true", [](const Value &v,
                const ArgumentReader &) { return v.isBool() && v.isTrue(); }},
    {"false", [](const Value &v,
                 const ArgumentReader &) { return v.isBool() && !v.isTrue(); }},
    {"boolean",
     [](const Value &v, const ArgumentReader &) { return v.isBool(); }},
    {"integer",
     [](const Value &v, const ArgumentReader &) {
       return v.isInt() || v.isLongInteger();
     }},
    {"float",
     [](const Value &v, const ArgumentReader &) {
       return v.isFloat() && !v.isLongInteger();
     }},
    {"number",
     [](const Value &v, const ArgumentReader &) { return v.isNumber(); }},
    {"string",
     [](const Value &v, const ArgumentReader &) { return v.isString(); }},
    {"mapping",
     [](const Value &v, const ArgumentReader &) { return v.isDict(); }},
    {"iterable",
     [](const Value &v, const ArgumentReader &) { return isIterable(v); }},
    {"sequence",
     [](const Value &v, const ArgumentReader &) { return isIterable(v); }},
    {"callable",
     [](const Value &v, const ArgumentReader &) {
       return v.object() && v.object()->isCallable();
     }},
    {"odd",
     [](const Value &v, const ArgumentReader &) {
       return remainder(v, 2).value_or(0) != 0;
     }},
    {"even", [](const Value &v,
                const ArgumentReader &) { return remainder(v, 2) == 0; }},
    {"divisibleby",
     [](const Value &v, const ArgumentReader &a) {
       return remainder(v, a.integer(0, "num", 0)) == 0;
     }},
    {"lower",
     [](const Value &v, const ArgumentReader &) {
       const std::string text = toText(v).bytes();
       return toLower(text) == text && toUpper(text) != text;
     }},
    {"upper",
     [](const Value &v, const ArgumentReader &) {
       const std::string text = toText(v).bytes();
       return toUpper(text) == text && toLower(text) != text;
     }},
    {"eq", equalTo},
    {"equalto", equalTo},
    {"sameas", equalTo},
    {"ne",
     [](const Value &v, const ArgumentReader &a) { return !equalTo(v, a); }},
    {"lt", lessThan},
    {"lessthan", lessThan},
    {"gt", greaterThan},
    {"greaterthan", greaterThan},
    {"le", [](const Value &v,
              const ArgumentReader &a) { return !greaterThan(v, a); }},
    {"ge",
     [](const Value &v, const ArgumentReader &a) { return !lessThan(v, a); }},
};

bool jinja::applyTest(Interpreter &interpreter, std::string_view name,
                      const Value &input, const Arguments &arguments) {
  const ArgumentReader reader(name, arguments);
  interpreter.charge(kStep + reader.weight());
  // Other tests without arguments only read the type.
  if (name == "lower" || name == "upper" || reader.weight() > 0)
    interpreter.charge(4 * input.weight());
  if (name == "in")
    return interpreter.contains(reader.need(0, "seq"), input);
  const auto *const found = std::ranges::find(
      kTests, name, &std::pair<std::string_view, Test>::first);
  if (found == std::end(kTests))
    throw Failure{"the test '" + std::string(name) + "' is not supported"};
  return found->second(input, reader);
}
