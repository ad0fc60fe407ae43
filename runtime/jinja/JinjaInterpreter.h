//===- JinjaInterpreter.h - Runs a template ---------------------*- C++ -*-===//
//
// Walks the tree of JinjaSyntax.h. An interpreter renders once. It counts and
// limits its work, because templates are untrusted input.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_JINJA_JINJAINTERPRETER_H
#define QWEN_RUNTIME_JINJA_JINJAINTERPRETER_H

#include "jinja/JinjaSyntax.h"

#include <nlohmann/json.hpp>

#include <deque>
#include <functional>
#include <map>

namespace qwen::jinja {

/// The work of an expression, a statement or a call, besides its bytes.
inline constexpr uint64_t kStep = 4;

/// Names of one scope.
struct Scope {
  std::map<std::string, Value, std::less<>> names;
  Scope *parent;
};

/// The characters of a string, or the items of a list.
struct Sequence {
  /// The string, or null.
  const MarkedText *text;
  /// Offsets of the characters, then the size of the string.
  std::vector<uint32_t> starts;
  const ListData *list;

  int64_t size() const {
    return int64_t(text ? starts.size() - 1 : list->items.size());
  }
  std::string_view character(int64_t i) const {
    const uint32_t begin = starts[size_t(i)];
    return std::string_view(text->bytes())
        .substr(begin, starts[size_t(i) + 1] - begin);
  }
};

class Interpreter {
public:
  /// The rendering ends when `stop` returns true, which may be empty. It is
  /// called about every millisecond.
  explicit Interpreter(const std::function<bool()> &stop) : stop(stop) {}

  /// Renders `source` with the members of the objects `input` and `own` as
  /// variables; the former hide the latter, whose strings count as the
  /// template's. Throws Error.
  MarkedText render(const Template &source, const nlohmann::ordered_json &input,
                    const nlohmann::ordered_json &own);

  /// Counts work before it is done. A unit is a byte that is read, compared or
  /// made, or 15 nanoseconds of other work. Throws Failure past the limit, or
  /// if `stop` ends the rendering.
  void charge(uint64_t units);

  Value makeString(MarkedText text);
  Value makeList(std::vector<Value> items, bool isTuple = false);
  Value makeDict(DictItems items);

  /// The items of a loop over `value`. Throws Failure if it is not iterable.
  std::vector<Value> iterate(const Value &value);

  /// `object.name` and `object[index]`, or undefined.
  Value attribute(const Value &object, std::string_view name);
  Value item(const Value &object, const Value &index);

  /// Python's `value in container`.
  bool contains(const Value &container, const Value &value);
  /// The value of a key in a dict, or null.
  const Value *find(const DictData &dict, std::string_view key);
  /// Python's items[key] = value for a dict under construction.
  void setItem(DictItems &items, const MarkedText &key, Value value);

  Value call(const Value &callee, const Arguments &arguments);

  /// Makes an object that lives until the end of the rendering.
  template <typename T, typename... Args> T *own(Args &&...args) {
    charge(64);
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T *pointer = object.get();
    objects.push_back(std::move(object));
    return pointer;
  }

  /// Renders the body of a macro or call block with bound parameters.
  Value runMacro(const Statement &macro, Scope *closure, const Value *caller,
                 const Arguments &arguments);
  /// Runs a loop's body for each of `items`; `depth` is the depth of the loop's
  /// recursion.
  MarkedText runRecursiveLoop(const Statement &loop, Scope *scope,
                              const Value &items, int64_t depth);

private:
  enum class Flow : uint8_t { Normal, Break, Continue };

  Flow run(const Body &body, Scope *scope);
  Flow run(const Statement &statement, Scope *scope);
  void runLoop(const Statement &loop, Scope *scope, const Value &iterable,
               int64_t depth);
  void runSet(const Statement &statement, Scope *scope, const Value &value);
  void runCallBlock(const Statement &statement, Scope *scope);
  void bindTargets(const std::vector<std::string> &targets, Scope *scope,
                   const Value &value);
  /// Renders the body to a string.
  MarkedText capture(const Body &body, Scope *scope);
  void print(const Value &value);

  Value evaluate(const Expression &node, Scope *scope);
  Value evaluateTest(const Expression &node, Scope *scope);
  /// A chain of `and` or of `or`.
  Value evaluateLogical(const Expression &node, Scope *scope);
  Value evaluateName(const Expression &node, Scope *scope);
  /// A list, a tuple or a dict.
  Value evaluateItems(const Expression &node, Scope *scope);
  Value evaluateConcat(const Expression &node, Scope *scope);
  Value evaluateCall(const Expression &node, Scope *scope);
  Value evaluateFilter(const Expression &node, Scope *scope,
                       const Value *input);
  Sequence sequenceOf(const Value &object);
  Value evaluateSlice(const Expression &node, Scope *scope);
  Value evaluateBinary(const Expression &node, Scope *scope);
  Value evaluateCompare(const Expression &node, Scope *scope);
  Arguments evaluateArguments(const Expression &node, Scope *scope);

  Value fromJson(const nlohmann::ordered_json &json, Origin origin,
                 uint32_t depth);
  Scope *newScope(Scope *parent);

  const std::function<bool()> &stop;
  uint64_t work = 0;
  /// The work at which `stop` is called again.
  uint64_t nextStopCheck = 0;
  int nesting = 0;
  /// The current line of the template, for messages.
  int line = 1;
  MarkedText *output = nullptr;
  std::deque<Scope> scopes;
  std::vector<std::unique_ptr<Object>> objects;
};

/// The function namespace(): an object whose attributes templates may set.
Object *makeNamespace(Interpreter &interpreter, const Arguments &arguments);

} // namespace qwen::jinja

#endif // QWEN_RUNTIME_JINJA_JINJAINTERPRETER_H
