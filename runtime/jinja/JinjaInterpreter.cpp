//===- JinjaInterpreter.cpp - Statements of a template --------------------===//

#include "jinja/JinjaInterpreter.h"

#include "jinja/JinjaBuiltins.h"
#include "text/Unicode.h"

#include "qwen/Support/JsonDigits.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::jinja;
using nlohmann::ordered_json;

/// The limit of work, about a second. A conversation of 10,000 messages takes
/// half of it.
static constexpr uint64_t kMaxWork = uint64_t(1) << 26;
/// Work between two calls of `stop`.
static constexpr uint64_t kWorkOfStopCheck = uint64_t(1) << 16;
/// Maximum depth of statements and expressions, macros included.
static constexpr int kMaxLevels = 500;
/// Maximum depth of lists and dicts.
static constexpr uint32_t kMaxValueDepth = 100;

//===----------------------------------------------------------------------===//
// Objects
//===----------------------------------------------------------------------===//

namespace {

class Loop final : public Object {
public:
  Loop(const Statement &loopStatement, Scope *outerScope,
       const std::vector<Value> &loopItems, int64_t loopDepth)
      : statement(loopStatement), scope(outerScope), items(loopItems),
        depth(loopDepth) {}

  std::string_view typeName() const override { return "loop"; }
  bool isCallable() const override { return statement.isRecursive; }

  std::optional<Value> attribute(Interpreter & /*interpreter*/,
                                 std::string_view name) override {
    const auto size = int64_t(items.size());
    if (name == "index0")
      return index;
    if (name == "index")
      return index + 1;
    if (name == "revindex0")
      return size - index - 1;
    if (name == "revindex")
      return size - index;
    if (name == "first")
      return index == 0;
    if (name == "last")
      return index + 1 == size;
    if (name == "length")
      return size;
    if (name == "depth0")
      return depth;
    if (name == "depth")
      return depth + 1;
    if (name == "previtem" && index > 0)
      return items[size_t(index - 1)];
    if (name == "nextitem" && index + 1 < size)
      return items[size_t(index + 1)];
    return std::nullopt;
  }

  Value call(Interpreter &interpreter, const Arguments &arguments) override {
    if (!statement.isRecursive)
      throw Failure{"the loop is not marked 'recursive'"};
    if (arguments.positional.size() != 1 || !arguments.named.empty())
      throw Failure{"loop() takes what to loop over"};
    return interpreter.makeString(interpreter.runRecursiveLoop(
        statement, scope, arguments.positional[0], depth + 1));
  }

  const Statement &statement;
  Scope *scope;
  /// Lives as long as the loop runs; ends with it.
  std::vector<Value> items;
  int64_t depth;
  int64_t index = 0;
};

class Macro final : public Object {
public:
  Macro(const Statement &macroStatement, Scope *definedIn)
      : statement(macroStatement), closure(definedIn) {}

  std::string_view typeName() const override { return "macro"; }
  bool isCallable() const override { return true; }
  Value call(Interpreter &interpreter, const Arguments &arguments) override {
    return interpreter.runMacro(statement, closure, nullptr, arguments);
  }

  const Statement &statement;
  Scope *closure;
};

/// A value whose attributes a template may set.
class Namespace final : public Object {
public:
  std::string_view typeName() const override { return "namespace"; }
  std::optional<Value> attribute(Interpreter &,
                                 std::string_view name) override {
    const auto found = names.find(name);
    if (found == names.end())
      return std::nullopt;
    return found->second;
  }

  std::map<std::string, Value, std::less<>> names;
};

/// Counts levels of recursion.
struct Nesting {
  explicit Nesting(int &counter) : levels(counter) {
    if (++levels > kMaxLevels) {
      --levels;
      throw Failure{"calls and expressions are nested too deeply"};
    }
  }
  ~Nesting() { --levels; }
  int &levels;
};

} // namespace

Object *jinja::makeNamespace(Interpreter &interpreter,
                             const Arguments &arguments) {
  auto *object = interpreter.own<Namespace>();
  for (const Value &value : arguments.positional) {
    if (!value.isDict())
      throw Failure{"namespace() takes dicts and named values"};
    for (const auto &[name, member] : value.dict()->items) {
      interpreter.charge(kStep + name.bytes().size());
      object->names[name.bytes()] = member;
    }
  }
  for (const auto &[name, value] : arguments.named)
    object->names[name] = value;
  return object;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

void Interpreter::charge(uint64_t units) {
  work += std::min(units, kMaxWork + 1);
  if (work > kMaxWork)
    throw Failure{"the template takes too many steps or too much memory"};
  if (work < nextStopCheck)
    return;
  nextStopCheck = work + kWorkOfStopCheck;
  if (stop && stop())
    throw Failure{"the rendering was stopped"};
}

Value Interpreter::makeString(MarkedText text) {
  charge(24 + text.memory());
  return Value(std::move(text));
}

/// Counts `value` as a part of `whole`.
template <typename Data> static void include(Data &whole, const Value &value) {
  whole.depth = std::max(whole.depth, value.depth() + 1);
  whole.weight += value.weight();
  if (whole.depth > kMaxValueDepth || whole.weight > kMaxWork)
    throw Failure{"a value is nested too deeply"};
}

Value Interpreter::makeList(std::vector<Value> items, bool isTuple) {
  charge(16 + 32 * items.size());
  auto list = std::make_shared<ListData>();
  for (const Value &value : items)
    include(*list, value);
  list->items = std::move(items);
  list->isTuple = isTuple;
  return Value(std::shared_ptr<const ListData>(std::move(list)));
}

Value Interpreter::makeDict(DictItems items) {
  charge(16 + 96 * items.size());
  auto dict = std::make_shared<DictData>();
  for (const auto &[name, value] : items) {
    include(*dict, value);
    dict->weight += name.bytes().size();
  }
  dict->items = std::move(items);
  return Value(std::shared_ptr<const DictData>(std::move(dict)));
}

Value Interpreter::fromJson(const ordered_json &json, Origin origin,
                            uint32_t depth) {
  if (depth > kMaxValueDepth)
    throw Failure{"a value is nested too deeply"};
  switch (json.type()) {
  case ordered_json::value_t::boolean:
    return json.get<bool>();
  case ordered_json::value_t::number_integer:
    return json.get<int64_t>();
  case ordered_json::value_t::number_unsigned:
    if (json.get<uint64_t>() > uint64_t(INT64_MAX))
      return Value::longInteger(json.dump());
    return json.get<int64_t>();
  case ordered_json::value_t::binary:
    return Value::longInteger(digitsOf(json).value_or(""));
  case ordered_json::value_t::number_float:
    return json.get<double>();
  case ordered_json::value_t::string:
    return makeString(
        {toValidUtf8(json.get_ref<const std::string &>()), origin});
  case ordered_json::value_t::array: {
    std::vector<Value> items;
    for (const ordered_json &value : json)
      items.push_back(fromJson(value, origin, depth + 1));
    return makeList(std::move(items));
  }
  case ordered_json::value_t::object: {
    DictItems items;
    for (const auto &[name, value] : json.items())
      items.emplace_back(MarkedText(toValidUtf8(name), origin),
                         fromJson(value, origin, depth + 1));
    return makeDict(std::move(items));
  }
  default:
    return Value();
  }
}

//===----------------------------------------------------------------------===//
// Rendering
//===----------------------------------------------------------------------===//

MarkedText Interpreter::render(const Template &source,
                               const ordered_json &input,
                               const ordered_json &own) {
  MarkedText text;
  output = &text;
  try {
    Scope *root = newScope(nullptr);
    for (const auto &[name, value] : input.items())
      root->names[name] = fromJson(value, Origin::Input, 1);
    for (const auto &[name, value] : own.items())
      if (!input.contains(name))
        root->names[name] = fromJson(value, Origin::Template, 1);
    run(source.body, root);
  } catch (const Failure &failure) {
    failAt(line, failure.what);
  }
  return text;
}

Scope *Interpreter::newScope(Scope *parent) {
  charge(64);
  scopes.push_back({{}, parent});
  return &scopes.back();
}

void Interpreter::print(const Value &value) {
  charge(value.weight());
  output->append(toText(value));
}

MarkedText Interpreter::capture(const Body &body, Scope *scope) {
  MarkedText text;
  MarkedText *const outer = std::exchange(output, &text);
  run(body, scope);
  output = outer;
  return text;
}

Interpreter::Flow Interpreter::run(const Body &body, Scope *scope) {
  for (const Statement &statement : body)
    if (const Flow flow = run(statement, scope); flow != Flow::Normal)
      return flow;
  return Flow::Normal;
}

void Interpreter::runCallBlock(const Statement &statement, Scope *scope) {
  const Expression &call = *statement.expressions[0];
  const Value callee = evaluate(*call.operands[0], scope);
  const auto *macro = dynamic_cast<const Macro *>(callee.object());
  if (!macro)
    throw Failure{"a call block needs a macro"};
  const Value caller = own<Macro>(statement, scope);
  print(runMacro(macro->statement, macro->closure, &caller,
                 evaluateArguments(call, scope)));
}

Interpreter::Flow Interpreter::run(const Statement &statement, Scope *scope) {
  const Nesting guard(nesting);
  charge(kStep);
  line = statement.line;
  switch (statement.kind) {
  case Statement::Text:
    charge(statement.name.size());
    output->write(statement.name);
    break;
  case Statement::Output:
    print(evaluate(*statement.expressions[0], scope));
    break;
  case Statement::If:
    for (size_t i = 0; i < statement.expressions.size(); ++i)
      if (evaluate(*statement.expressions[i], scope).isTrue())
        return run(statement.bodies[i], scope);
    if (statement.bodies.size() > statement.expressions.size())
      return run(statement.bodies.back(), scope);
    break;
  case Statement::For:
    runLoop(statement, scope, evaluate(*statement.expressions[0], scope), 0);
    break;
  case Statement::Set:
    runSet(statement, scope, evaluate(*statement.expressions[0], scope));
    break;
  case Statement::SetBlock: {
    Value value = makeString(capture(statement.bodies[0], newScope(scope)));
    if (statement.expressions[0])
      value = evaluateFilter(*statement.expressions[0], scope, &value);
    runSet(statement, scope, value);
    break;
  }
  case Statement::Macro:
    scope->names[statement.name] = own<Macro>(statement, scope);
    break;
  case Statement::CallBlock:
    runCallBlock(statement, scope);
    break;
  case Statement::FilterBlock: {
    const Value text =
        makeString(capture(statement.bodies[0], newScope(scope)));
    print(evaluateFilter(*statement.expressions[0], scope, &text));
    break;
  }
  case Statement::With: {
    Scope *inner = newScope(scope);
    for (size_t i = 0; i < statement.targets.size(); ++i)
      inner->names[statement.targets[i]] =
          evaluate(*statement.expressions[i], scope);
    return run(statement.bodies[0], inner);
  }
  case Statement::Break:
    return Flow::Break;
  case Statement::Continue:
    return Flow::Continue;
  case Statement::Group:
    return run(statement.bodies[0], scope);
  }
  return Flow::Normal;
}

void Interpreter::bindTargets(const std::vector<std::string> &targets,
                              Scope *scope, const Value &value) {
  if (targets.size() == 1) {
    scope->names[targets[0]] = value;
    return;
  }
  const std::vector<Value> parts = iterate(value);
  if (parts.size() != targets.size())
    throw Failure{std::to_string(parts.size()) + " values for " +
                  std::to_string(targets.size()) + " names"};
  charge(kStep * parts.size());
  for (size_t i = 0; i < parts.size(); ++i)
    scope->names[targets[i]] = parts[i];
}

void Interpreter::runSet(const Statement &statement, Scope *scope,
                         const Value &value) {
  if (statement.attribute.empty())
    return bindTargets(statement.targets, scope, value);
  const std::string &name = statement.targets[0];
  const Scope *found = scope;
  while (found && !found->names.count(name))
    found = found->parent;
  auto *object =
      found
          ? dynamic_cast<Namespace *>(found->names.find(name)->second.object())
          : nullptr;
  if (!object)
    throw Failure{"cannot set '" + statement.attribute + "' of '" + name +
                  "': it is not a namespace"};
  object->names[statement.attribute] = value;
}

void Interpreter::runLoop(const Statement &statement, Scope *scope,
                          const Value &iterable, int64_t depth) {
  std::vector<Value> items = iterate(iterable);
  Scope *inner = newScope(scope);
  if (const ExpressionPtr &condition = statement.expressions[1]) {
    std::vector<Value> kept;
    for (const Value &value : items) {
      bindTargets(statement.targets, inner, value);
      if (evaluate(*condition, inner).isTrue())
        kept.push_back(value);
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    run(statement.bodies[1], scope);
    return;
  }
  auto *loop = own<Loop>(statement, scope, items, depth);
  for (size_t i = 0; i < items.size(); ++i) {
    charge(16);
    inner->names.clear();
    loop->index = int64_t(i);
    bindTargets(statement.targets, inner, items[i]);
    inner->names["loop"] = loop;
    if (run(statement.bodies[0], inner) == Flow::Break)
      break;
  }
  loop->items.clear();
}

MarkedText Interpreter::runRecursiveLoop(const Statement &loop, Scope *scope,
                                         const Value &items, int64_t depth) {
  const Nesting guard(nesting);
  MarkedText text;
  MarkedText *const outer = std::exchange(output, &text);
  runLoop(loop, scope, items, depth);
  output = outer;
  return text;
}

Value Interpreter::runMacro(const Statement &macro, Scope *closure,
                            const Value *caller, const Arguments &arguments) {
  const Nesting guard(nesting);
  Scope *scope = newScope(closure);
  const std::vector<std::string> &names = macro.targets;
  charge((kStep + arguments.named.size()) * names.size());
  // The expressions of a call block begin with the call itself.
  const size_t firstDefault = macro.kind == Statement::CallBlock;
  const size_t defaults = macro.expressions.size() - firstDefault;
  if (arguments.positional.size() > names.size())
    throw Failure{"'" + macro.name + "' takes " + std::to_string(names.size()) +
                  " arguments and is called with " +
                  std::to_string(arguments.positional.size())};
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    scope->names[names[i]] = arguments.positional[i];
  for (const auto &[name, value] : arguments.named) {
    if (std::ranges::find(names, name) == names.end())
      throw Failure{"'" + macro.name + "' has no argument '" + name + "'"};
    if (!scope->names.emplace(name, value).second)
      throw Failure{"'" + macro.name + "' is given '" + name + "' twice"};
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (scope->names.count(names[i]))
      continue;
    const size_t required = names.size() - defaults;
    scope->names[names[i]] =
        i < required
            ? Value::undefined("'" + names[i] + "' is not given")
            : evaluate(*macro.expressions[firstDefault + i - required], scope);
  }
  if (caller)
    scope->names["caller"] = *caller;
  return makeString(capture(macro.bodies[0], scope));
}
