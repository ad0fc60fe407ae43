//===- JinjaTests.cpp - Tests of values -----------------------------------===//
//
// The tests of the operator "is": `messages is defined`.
//
//===----------------------------------------------------------------------===//

#include "jinja/JinjaBuiltins.h"
#include "jinja/JinjaInterpreter.h"

#include <map>

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

static const std::map<std::string_view, Test> &tests() {
  using Args = ArgumentReader;
  static const Test equalTo = [](const Value &v, const Args &a) {
    return equal(v, a.need(0, "other"));
  };
  static const Test notEqualTo = [](const Value &v, const Args &a) {
    return !equal(v, a.need(0, "other"));
  };
  static const Test lessThan = [](const Value &v, const Args &a) {
    return less(v, a.need(0, "other"));
  };
  static const Test greaterThan = [](const Value &v, const Args &a) {
    return less(a.need(0, "other"), v);
  };
  static const std::map<std::string_view, Test> table = {
      {"defined",
       [](const Value &v, const Args &) { return !v.isUndefined(); }},
      {"undefined",
       [](const Value &v, const Args &) { return v.isUndefined(); }},
      {"none", [](const Value &v, const Args &) { return v.isNone(); }},
      {"true",
       [](const Value &v, const Args &) { return v.isBool() && v.isTrue(); }},
      {"false",
       [](const Value &v, const Args &) { return v.isBool() && !v.isTrue(); }},
      {"boolean", [](const Value &v, const Args &) { return v.isBool(); }},
      {"integer", [](const Value &v,
                     const Args &) { return v.isInt() || v.isLongInteger(); }},
      {"float", [](const Value &v,
                   const Args &) { return v.isFloat() && !v.isLongInteger(); }},
      {"number", [](const Value &v, const Args &) { return v.isNumber(); }},
      {"string", [](const Value &v, const Args &) { return v.isString(); }},
      {"mapping", [](const Value &v, const Args &) { return v.isDict(); }},
      {"iterable", [](const Value &v, const Args &) { return isIterable(v); }},
      {"sequence", [](const Value &v, const Args &) { return isIterable(v); }},
      {"callable",
       [](const Value &v, const Args &) {
         return v.object() && v.object()->isCallable();
       }},
      {"odd", [](const Value &v,
                 const Args &) { return remainder(v, 2).value_or(0) != 0; }},
      {"even",
       [](const Value &v, const Args &) { return remainder(v, 2) == 0; }},
      {"divisibleby",
       [](const Value &v, const Args &a) {
         return remainder(v, a.integer(0, "num", 0)) == 0;
       }},
      {"lower",
       [](const Value &v, const Args &) {
         const std::string text = toText(v).bytes();
         return toLower(text) == text && toUpper(text) != text;
       }},
      {"upper",
       [](const Value &v, const Args &) {
         const std::string text = toText(v).bytes();
         return toUpper(text) == text && toLower(text) != text;
       }},
      {"eq", equalTo},
      {"equalto", equalTo},
      {"sameas", equalTo},
      {"ne", notEqualTo},
      {"lt", lessThan},
      {"lessthan", lessThan},
      {"gt", greaterThan},
      {"greaterthan", greaterThan},
      {"le", [](const Value &v,
                const Args &a) { return !less(a.need(0, "other"), v); }},
      {"ge", [](const Value &v,
                const Args &a) { return !less(v, a.need(0, "other")); }},
  };
  return table;
}

bool jinja::applyTest(Interpreter &interpreter, std::string_view name,
                      const Value &input, const Arguments &arguments) {
  const ArgumentReader reader(name, arguments);
  interpreter.charge(kStep + reader.weight());
  // Other tests without arguments only read the type.
  if (name == "lower" || name == "upper" || reader.weight() > 0)
    interpreter.charge(4 * input.weight());
  if (name == "in")
    return interpreter.contains(reader.need(0, "seq"), input);
  const auto found = tests().find(name);
  if (found == tests().end())
    throw Failure{"the test '" + std::string(name) + "' is not supported"};
  return found->second(input, reader);
}
