//===- KeptSchema.cpp - JSON schemas that grammars keep -------------------===//

#include "text/KeptSchema.h"

#include "text/SchemaNumbers.h"
#include "text/SchemaTypes.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/JsonDigits.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

using namespace qwen;
using nlohmann::ordered_json;

using J = const ordered_json &;

[[noreturn]] static void refuseKeyword(const std::string &keyword,
                                       const std::string &why) {
  throw Error(keyword + " " + why);
}

//===----------------------------------------------------------------------===//
// Keywords with schemas
//===----------------------------------------------------------------------===//

namespace {
/// What the value of a keyword is.
enum class Holds : uint8_t { Schema, List, SchemaOrList, Map };
/// What its schemas are about: the value of the keyword's own schema, a part of
/// it, or nothing without a reference.
enum class About : uint8_t { Value, Part, Nothing };
struct Inner {
  std::string_view keyword;
  Holds holds;
  About about;
};
} // namespace

/// Those that grammars keep.
static constexpr Inner kInner[] = {
    {"properties", Holds::Map, About::Part},
    {"patternProperties", Holds::Map, About::Part},
    {"$defs", Holds::Map, About::Nothing},
    {"definitions", Holds::Map, About::Nothing},
    {"additionalProperties", Holds::Schema, About::Part},
    {"items", Holds::SchemaOrList, About::Part},
    {"additionalItems", Holds::Schema, About::Part},
    {"prefixItems", Holds::List, About::Part},
    {"allOf", Holds::List, About::Value},
    {"anyOf", Holds::List, About::Value},
    {"oneOf", Holds::List, About::Value},
};

/// The schemas that the value of a keyword has, with their paths in it.
template <typename Json>
static void
forEachIn(const Inner &row, Json &value,
          const std::function<void(Json &, const std::string &path)> &act) {
  const bool isMany =
      row.holds != Holds::Schema &&
      (row.holds == Holds::Map ? value.is_object() : value.is_array());
  const std::string path = "/" + std::string(row.keyword);
  if (isMany)
    for (const auto &each : value.items())
      act(each.value(), path + "/" + each.key());
  else if (row.holds == Holds::Schema || row.holds == Holds::SchemaOrList)
    act(value, path);
}

/// Calls `act` for the schema and for all in it, inner ones first. What another
/// keyword holds may be a schema, too, as references may lead there.
static void forEachSchema(
    ordered_json &schema, const std::string &path,
    const std::function<void(ordered_json &, const std::string &path)> &act) {
  if (schema.is_array())
    for (const auto &each : schema.items())
      forEachSchema(each.value(), path + "/" + each.key(), act);
  if (!schema.is_object())
    return;
  for (const auto &member : schema.items()) {
    const auto *const row =
        std::ranges::find(kInner, member.key(), &Inner::keyword);
    if (row != std::end(kInner))
      forEachIn<ordered_json>(
          *row, member.value(),
          [&](ordered_json &each, const std::string &inner) {
            forEachSchema(each, path + inner, act);
          });
    else if (member.key() != "const" && member.key() != "enum")
      forEachSchema(member.value(), path + "/" + member.key(), act);
  }
  act(schema, path);
}

void qwen::forEachPart(J schema, const std::function<void(J part)> &act) {
  if (!schema.is_object())
    return;
  for (const Inner &row : kInner)
    if (const auto found = schema.find(row.keyword);
        found != schema.end() && row.about != About::Nothing)
      forEachIn<const ordered_json>(
          row, *found, [&](J each, const std::string &) { act(each); });
}

//===----------------------------------------------------------------------===//
// Keywords that forbid nothing
//===----------------------------------------------------------------------===//

static bool isTrue(J value) {
  return value == true || (value.is_object() && value.empty());
}

static bool isAnyName(J value) {
  return isTrue(value) || value == ordered_json{{"type", "string"}};
}

static bool isFalse(J value) { return value == false; }

static bool isEmptyObject(J value) {
  return value.is_object() && value.empty();
}

/// A format is a note where nobody knows it.
static bool isUnknownFormat(J value) {
  constexpr std::string_view kKnown[] = {
      "date-time", "time", "date", "duration", "email",
      "hostname",  "ipv4", "ipv6", "uuid",     "uri"};
  return value.is_string() &&
         !std::ranges::count(kKnown, value.get_ref<const std::string &>());
}

namespace {
struct Neutral {
  std::string_view keyword;
  bool (*forbidsNothing)(J value);
};
} // namespace

static constexpr Neutral kNeutral[] = {
    {"format", isUnknownFormat},
    {"propertyNames", isAnyName},
    {"uniqueItems", isFalse},
    {"unevaluatedItems", isTrue},
    {"unevaluatedProperties", isTrue},
    {"dependentRequired", isEmptyObject},
    {"dependentSchemas", isEmptyObject},
};

bool qwen::forbidsNothing(std::string_view keyword, J value) {
  const auto *const row =
      std::ranges::find(kNeutral, keyword, &Neutral::keyword);
  return isNote(keyword) ||
         (row != std::end(kNeutral) && row->forbidsNothing(value));
}

static void dropNeutral(ordered_json &schema) {
  for (const Neutral &row : kNeutral)
    if (schema.contains(row.keyword) && row.forbidsNothing(schema[row.keyword]))
      schema.erase(row.keyword);
}

ordered_json qwen::loosenedSchema(ordered_json schema) {
  constexpr const char *kNeverKept[] = {"not",
                                        "if",
                                        "then",
                                        "else",
                                        "uniqueItems",
                                        "contains",
                                        "minContains",
                                        "maxContains",
                                        "dependencies",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "propertyNames",
                                        "unevaluatedItems",
                                        "unevaluatedProperties",
                                        "$dynamicRef",
                                        "$recursiveRef"};
  forEachSchema(schema, "", [&](ordered_json &each, const std::string &) {
    for (const char *keyword : kNeverKept)
      each.erase(keyword);
    if (each.contains("oneOf") && !each.contains("anyOf")) {
      each["anyOf"] = each["oneOf"];
      each.erase("oneOf");
    }
  });
  return schema;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// Whether each name of a pattern can be made longer. An object has no name
/// twice, and so never runs out of them.
static bool isEndless(const std::string &pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (pattern[i] == '\\' && (next == 'b' || next == 'B' || next == 'z'))
      return false;
    if (pattern[i] == '\\') {
      ++i;
      continue;
    }
    if (pattern[i] != '$')
      continue;
    const std::string_view before = std::string_view(pattern).substr(0, i);
    const bool isEscaped =
        before.size() > 1 && before[before.size() - 2] == '\\';
    if (next != '\0' || isEscaped ||
        !(before.ends_with('*') || before.ends_with('+') ||
          before.ends_with(",}")))
      return false;
  }
  return true;
}

static void checkNames(J schema) {
  if (!schema.contains("patternProperties") ||
      !schema["patternProperties"].is_object())
    return;
  for (const auto &[pattern, value] : schema["patternProperties"].items())
    if (!isEndless(pattern))
      refuseKeyword("patternProperties",
                    quote(pattern) +
                        " has names that nothing may follow, which can "
                        "be used up; it may end in *$, +$ or without $");
}

//===----------------------------------------------------------------------===//
// Size
//===----------------------------------------------------------------------===//

namespace {
/// What a schema costs.
struct Cost {
  /// The parts, with references as one each, and with what they stand for.
  double parts = 1, whole = 1;
  /// The alternatives of the value.
  double alternatives = 1;
  /// The greatest number of ways in which one string goes on, and the greatest
  /// product of the divisors of one number.
  double ways = 1, divisor = 1;
};

class Sizer {
public:
  explicit Sizer(J whole) : root(whole) {}

  Cost sizeOf(J schema);

private:
  /// The keywords of the schema itself, and its inner values.
  Cost ownOf(J schema);
  /// One of these schemas.
  Cost anyOf(J list);
  void require(const Cost &cost) const;

  J root;
  std::map<const void *, std::optional<Cost>> known;
  int64_t depth = 0;
};
} // namespace

/// The number of ways in which a regular expression goes on with a byte: one,
/// and one for each choice.
static double waysOf(const std::string &pattern) {
  return 1 + static_cast<double>(std::ranges::count_if(pattern, [](char c) {
           return std::string_view("|*+?{").find(c) != std::string_view::npos;
         }));
}

/// Both schemas of one value.
static Cost both(const Cost &a, const Cost &b) {
  return {.parts = a.parts * b.alternatives + b.parts * a.alternatives +
                   std::min(a.whole, b.whole) *
                       std::max(a.alternatives, b.alternatives),
          .whole = a.whole + b.whole,
          .alternatives = a.alternatives * b.alternatives,
          .ways = a.ways * b.ways,
          .divisor = a.divisor * b.divisor};
}

/// A part of a schema that is about another value.
static void addInner(Cost &cost, const Cost &inner) {
  cost.parts += inner.parts;
  cost.whole += inner.whole;
  cost.ways = std::max(cost.ways, inner.ways);
  cost.divisor = std::max(cost.divisor, inner.divisor);
}

void Sizer::require(const Cost &cost) const {
  const auto tooMany = [](const char *keyword, const char *what, double found,
                          int64_t most) {
    if (found > static_cast<double>(most))
      refuseKeyword(keyword, std::string("has ") + what + " of more than " +
                                 std::to_string(most));
  };
  tooMany("pattern", "expressions of one string with a product", cost.ways,
          SchemaLimits::kWays);
  tooMany("multipleOf", "divisors of one number with a product", cost.divisor,
          SchemaLimits::kDivisor);
  tooMany("the schema", "a number of parts", cost.parts, SchemaLimits::kParts);
}

Cost Sizer::anyOf(J list) {
  Cost cost{.parts = 1, .whole = 1, .alternatives = 0};
  if (list.is_array())
    for (J each : list) {
      const Cost one = sizeOf(each);
      addInner(cost, one);
      cost.alternatives += one.alternatives;
    }
  cost.alternatives = std::max(cost.alternatives, 1.0);
  return cost;
}

Cost Sizer::ownOf(J schema) {
  constexpr double kPartsOfPair = 20;
  Cost cost;
  double names = 0, patterns = 0;
  for (const Inner &row : kInner) {
    const auto found = schema.find(row.keyword);
    if (found == schema.end() || row.about == About::Value)
      continue;
    forEachIn<const ordered_json>(
        row, *found,
        [&](J each, const std::string &) { addInner(cost, sizeOf(each)); });
    const auto size = static_cast<double>(found->size());
    if (row.keyword == "properties")
      names = size;
    if (row.keyword == "patternProperties")
      patterns = size;
  }
  // Patterns are compared with each other and with names.
  cost.parts += patterns * (patterns * kPartsOfPair + names);
  for (const char *keyword : {"pattern", "format"})
    if (schema.contains(keyword) && schema[keyword].is_string())
      cost.ways *= keyword == std::string_view("format")
                       ? 16
                       : waysOf(schema[keyword].get<std::string>());
  cost.divisor = divisorOf(schema);
  return cost;
}

/// Whether only notes are beside a reference. llguidance does not know one.
static bool isAlone(J schema) {
  return std::ranges::all_of(schema.items(), [](const auto &member) {
    return member.key() == "$ref" ||
           (isNote(member.key()) && member.key() != "deprecated");
  });
}

Cost Sizer::sizeOf(J schema) {
  if (!schema.is_object())
    return {};
  const auto [place, isNew] = known.emplace(&schema, std::nullopt);
  if (!isNew)
    return place->second.value_or(Cost());
  if (++depth > SchemaLimits::kDepth)
    refuseKeyword("$ref", "leads through more than " +
                              std::to_string(SchemaLimits::kDepth) +
                              " schemas in a row");
  Cost cost = ownOf(schema);
  const auto add = [&](const Cost &other) { cost = both(cost, other); };
  if (schema.contains("allOf") && schema["allOf"].is_array())
    for (J each : schema["allOf"])
      add(sizeOf(each));
  if (schema.contains("anyOf"))
    add(anyOf(schema["anyOf"]));
  if (schema.contains("oneOf")) {
    // Each is compared with each.
    Cost choice = anyOf(schema["oneOf"]);
    const auto size = static_cast<double>(schema["oneOf"].size());
    choice.parts += size * size;
    add(choice);
  }
  if (schema.contains("enum") && schema["enum"].is_array()) {
    const auto size = static_cast<double>(schema["enum"].size());
    add({.parts = size, .whole = size, .alternatives = std::max(size, 1.0)});
  }
  if (schema.contains("$ref"))
    if (const ordered_json *const target = resolve(root, schema["$ref"])) {
      const Cost other = sizeOf(*target);
      // Alone, it stays a reference.
      if (isAlone(schema))
        cost = {.parts = cost.parts,
                .whole = std::max(cost.whole, other.whole),
                .alternatives = other.alternatives,
                .ways = std::max(cost.ways, other.ways),
                .divisor = std::max(cost.divisor, other.divisor)};
      else
        add(other);
    }
  require(cost);
  known[&schema] = cost;
  --depth;
  return cost;
}

//===----------------------------------------------------------------------===//
// Schemas
//===----------------------------------------------------------------------===//

ordered_json qwen::keptSchema(ordered_json schema) {
  forEachSchema(schema, "", [](ordered_json &each, const std::string &path) {
    try {
      dropNeutral(each);
      checkNumbers(each);
      checkNames(each);
    } catch (const Error &error) {
      throw Error(error.what() + (path.empty() ? "" : ", at " + quote(path)));
    }
  });
  Sizer(schema).sizeOf(schema);
  // Those that are left are in notes.
  return withDoubles(std::move(schema));
}
