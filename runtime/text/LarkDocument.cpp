//===- LarkDocument.cpp - JSON schemas in grammars of Lark ----------------===//

#include "text/LarkDocument.h"

#include "text/KeptSchema.h"
#include "text/LarkText.h"
#include "text/SchemaNumbers.h"
#include "text/SchemaTypes.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/JsonDigits.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <map>
#include <ranges>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

using namespace qwen;
using nlohmann::ordered_json;

using J = const ordered_json &;

/// The schema that llguidance keeps, with the form of its documents.
static std::string withForm(ordered_json schema) {
  constexpr const char *kOptions = "x-guidance";
  if (schema.contains(kOptions))
    throw Error(std::string("the keyword ") + kOptions + " is not kept");
  schema = keptSchema(std::move(schema));
  schema[kOptions] = {{"whitespace_flexible", false},
                      {"item_separator", ", ?"},
                      {"key_separator", ": ?"}};
  return schema.dump();
}

/// The same separators in a rule.
static constexpr std::string_view kComma = " /, ?/ ", kColon = " /: ?/ ";

namespace {
/// Writes the rules of a document.
class Rules {
public:
  Rules(J whole, J part, const std::string &rule)
      : root(whole), start(part), name(rule) {}

  LarkDocument write();

private:
  static constexpr int kMostDepth = 100;
  static constexpr size_t kMostRules = 4096, kMostBytes = size_t{1} << 20;
  using Places = std::unordered_set<const void *>;

  void findHolders();
  /// A part in which no constant needs rules, as a schema of its own.
  std::string schemaOf(ordered_json part);
  std::string jsonOf(J part);
  /// An expression of the values of a schema. It may be repeated.
  std::string valueOf(J schema);
  std::string behindReference(J schema);
  std::string choiceOf(J schema, const char *keyword);
  std::string constantOf(J schema);
  std::string objectOf(J schema);
  std::string arrayOf(J schema);
  /// A member of an object, if its name is none of `names`.
  std::string otherMember(J names, J schema);

  [[noreturn]] void refuse(const std::string &keyword) const;
  /// Refuses keywords of a schema that forbid something, besides `kept`.
  void requireKeywords(J schema,
                       std::initializer_list<std::string_view> kept) const;
  std::string newName();
  void define(const std::string &what, const std::string &text);
  /// The name of a new rule.
  std::string rule(const std::string &text);

  J root, start;
  const std::string name;
  /// The schemas that have, or lead to, a constant that needs rules.
  Places holders = {};
  /// The definitions that references from `start` lead into.
  Places definitions = {};
  /// The rules of the schemas that references lead to.
  std::map<const void *, std::string> targets = {};
  std::string lines = {};
  size_t made = 0;
  /// Number of bytes of schemas; each has the definitions.
  size_t size = 0;
  int depth = 0;
};
} // namespace

LarkDocument qwen::larkDocument(J root, J part, const std::string &rule) {
  return Rules(root, part, rule).write();
}

LarkDocument Rules::write() {
  findHolders();
  if (!holders.contains(&start)) {
    const std::string schema = schemaOf(start);
    return {schema, "%json " + schema};
  }
  const std::string expression = valueOf(start);
  return {"", expression, lines};
}

/// What the first two names of a reference "#/$defs/name/..." stand for.
static const ordered_json *definitionOf(J root, const std::string &reference) {
  constexpr size_t kSlash = 1;
  const size_t second = reference.find('/', kSlash + 1);
  const size_t third =
      second == std::string::npos ? second : reference.find('/', second + 1);
  return resolve(root, reference.substr(0, third));
}

void Rules::findHolders() {
  std::unordered_map<const void *, std::vector<const void *>> outer;
  Places reached;
  std::vector<const ordered_json *> open = {&start};
  std::vector<const void *> found;
  while (!open.empty()) {
    J schema = *open.back();
    open.pop_back();
    if (!reached.insert(&schema).second)
      continue;
    const auto add = [&](J inner) {
      outer[&inner].push_back(&schema);
      open.push_back(&inner);
    };
    forEachPart(schema, add);
    if (schema.contains("$ref"))
      if (const ordered_json *const target = resolve(root, schema["$ref"])) {
        add(*target);
        definitions.insert(definitionOf(root, schema["$ref"]));
      }
    for (const char *keyword : {"const", "enum"})
      if (schema.contains(keyword) && inexactNumber(schema[keyword]))
        found.push_back(&schema);
  }
  while (!found.empty()) {
    const void *const holder = found.back();
    found.pop_back();
    if (holders.insert(holder).second)
      found.insert(found.end(), outer[holder].begin(), outer[holder].end());
  }
}

//===----------------------------------------------------------------------===//
// Parts that stay schemas
//===----------------------------------------------------------------------===//

/// Refuses references that mean something else in a schema of its own.
static void requireReferences(J part) {
  if (part.is_object() && part.contains("$ref") && part["$ref"].is_string()) {
    const auto &text = part["$ref"].get_ref<const std::string &>();
    if (!text.starts_with("#/$defs/") && !text.starts_with("#/definitions/"))
      throw Error("$ref " + quote(text) + " must lead into $defs");
  }
  if (part.is_structured())
    for (J each : part)
      requireReferences(each);
}

std::string Rules::schemaOf(ordered_json part) {
  if (part == true)
    part = ordered_json::object();
  if (!part.is_object())
    refuse(part.dump());
  if (&root != &start || !holders.empty()) {
    const bool refers = part.dump().find("\"$ref\"") != std::string::npos;
    for (const char *key : {"$defs", "definitions"}) {
      part.erase(key);
      if (refers && root.contains(key) && root[key].is_object())
        for (const auto &[of, definition] : root[key].items())
          if (definitions.contains(&definition) &&
              !holders.contains(&definition))
            part[key][of] = definition;
    }
    requireReferences(part);
  }
  return withForm(std::move(part));
}

std::string Rules::jsonOf(J part) {
  const std::string text = schemaOf(part);
  size += text.size();
  if (size > kMostBytes)
    throw Error("the parts of a schema with its definitions have more than " +
                std::to_string(kMostBytes) + " bytes");
  return "%json " + text;
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

void Rules::refuse(const std::string &keyword) const {
  try {
    keptSchema(start);
    keptSchema(root);
  } catch (const Error &error) {
    throw Error(error.what() + ("; " + keyword) + " is not kept around it");
  }
  throw Error(keyword + " is not kept around a number with many digits");
}

void Rules::requireKeywords(
    J schema, std::initializer_list<std::string_view> kept) const {
  for (const auto &[key, value] : schema.items())
    if (!forbidsNothing(key, value) && !std::ranges::count(kept, key))
      refuse(key);
}

// One after another, as clang-tidy wants it of long texts.
static std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts)
    all += part;
  return all;
}

std::string Rules::newName() {
  if (++made > kMostRules)
    throw Error("the schema has more than " + std::to_string(kMostRules) +
                " parts around numbers with many digits");
  return name + "-" + std::to_string(made);
}

void Rules::define(const std::string &what, const std::string &text) {
  lines += what;
  lines += ": " + text + "\n";
}

std::string Rules::rule(const std::string &text) {
  std::string defined = newName();
  define(defined, text);
  return defined;
}

std::string Rules::valueOf(J schema) {
  if (!holders.contains(&schema))
    return jsonOf(schema);
  if (++depth > kMostDepth)
    refuse("$ref");
  const ordered_json type = schema.value("type", ordered_json());
  std::string text;
  if (schema.contains("$ref"))
    text = behindReference(schema);
  else if (schema.contains("const") || schema.contains("enum"))
    text = constantOf(schema);
  else if (type == "object")
    text = objectOf(schema);
  else if (type == "array")
    text = arrayOf(schema);
  else
    for (const char *keyword : {"anyOf", "oneOf", "allOf"})
      if (text.empty() && schema.contains(keyword))
        text = choiceOf(schema, keyword);
  if (text.empty())
    refuse(type.is_null() ? "a schema without type" : "type " + type.dump());
  --depth;
  return text;
}

std::string Rules::behindReference(J schema) {
  requireKeywords(schema, {"$ref"});
  J target = *resolve(root, schema["$ref"]);
  const auto [place, isNew] = targets.try_emplace(&target);
  if (isNew) {
    place->second = newName();
    define(place->second, valueOf(target));
  }
  return place->second;
}

std::string Rules::choiceOf(J schema, const char *keyword) {
  requireKeywords(schema, {keyword});
  J parts = schema[keyword];
  // One schema is the same in each.
  if (keyword != std::string_view("anyOf") && parts.size() != 1)
    refuse(keyword);
  std::string all;
  for (J part : parts)
    all += (all.empty() ? "(" : " | ") + valueOf(part);
  return all + ")";
}

/// The digits of a number past a double or 64 bits.
static std::string digitsIn(J number) {
  if (!number.is_number_float())
    return dumpWithDigits(number);
  // It is an integer, and so large that the text has an exponent.
  std::string text = number.dump();
  const size_t end = text.find('e');
  auto zeros = std::stoul(text.substr(end + 1));
  text.resize(end);
  if (const size_t point = text.find('.'); point != std::string::npos) {
    zeros -= text.size() - point - 1;
    text.erase(point, 1);
  }
  return text + std::string(zeros, '0');
}

std::string Rules::constantOf(J schema) {
  const char *const keyword = schema.contains("const") ? "const" : "enum";
  requireKeywords(schema, {keyword, "type"});
  const ordered_json values = schema.contains("const")
                                  ? ordered_json::array({schema["const"]})
                                  : schema["enum"];
  if (!values.is_array())
    refuse("an enum that is no array");
  const SchemaTypes types = schema.contains("type")
                                ? schemaTypes({}, {{"type", schema["type"]}})
                                : SchemaTypes{UINT8_MAX};
  ordered_json others = ordered_json::array();
  std::string numbers;
  for (J value : values) {
    if (!(schemaTypes({}, {{"const", value}}) & types))
      continue;
    if (value.is_structured() && inexactNumber(value))
      refuse("an array or an object in " + std::string(keyword));
    if (inexactNumber(value))
      numbers += (numbers.empty() ? "/" : "|") + digitsIn(value);
    else
      others.push_back(value);
  }
  if (numbers.empty())
    refuse("type");
  numbers = rule(numbers + "/");
  return others.empty()
             ? numbers
             : "(" + numbers + " | " + jsonOf({{"enum", others}}) + ")";
}

std::string Rules::otherMember(J names, J schema) {
  std::string terminal = newName(),
              text = R"(/"([^"\\\x00-\x1f\x7f]|\\["\\bfnrt])*"/)";
  std::ranges::transform(terminal, terminal.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  const char *before = " & ~(";
  for (const auto &[key, value] : names.items()) {
    text += before + larkString(ordered_json(key).dump());
    before = " | ";
  }
  define(terminal, names.empty() ? text : text + ")");
  return rule(joined({terminal, kColon, valueOf(schema)}));
}

std::string Rules::objectOf(J schema) {
  requireKeywords(schema,
                  {"type", "properties", "required", "additionalProperties"});
  static const ordered_json kNone = ordered_json::object(), kAny = true;
  J properties = schema.contains("properties") ? schema["properties"] : kNone,
    others = schema.contains("additionalProperties")
                 ? schema["additionalProperties"]
                 : kAny;
  if (!properties.is_object())
    refuse("properties");
  std::set<std::string> required;
  for (J key : schema.value("required", ordered_json::array())) {
    if (!key.is_string() || !properties.contains(key.get<std::string>()))
      refuse("required " + key.dump());
    required.insert(key);
  }
  // What an object has from a member on, if it is the first one, and behind
  // others.
  std::string first = "\"\"", next = first;
  if (others != false) {
    const std::string member = otherMember(properties, others);
    next = joined({"(", kComma, member, ")*"});
    first = joined({"(", member, " ", next, ")?"});
  }
  std::vector<std::string> keys;
  for (const auto &[key, value] : properties.items())
    keys.push_back(key);
  for (const std::string &key : std::views::reverse(keys)) {
    const std::string member =
        rule(joined({larkString(ordered_json(key).dump()), kColon,
                     valueOf(properties[key])}));
    if (required.contains(key)) {
      first = joined({member, " ", next});
      next = joined({kComma, first});
    } else {
      const std::string behind = rule(next);
      first = joined({member, " ", behind, " | ", first});
      next = joined({"(", kComma, member, ")? ", behind});
    }
  }
  return rule("\"{\" (" + first + ") \"}\"");
}

std::string Rules::arrayOf(J schema) {
  constexpr uint64_t kMostItems = 1 << 20;
  requireKeywords(schema, {"type", "items", "minItems", "maxItems"});
  const auto countOf = [&](const char *key, uint64_t other) {
    const ordered_json value = schema.value(key, ordered_json(other));
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMostItems)
      refuse(key);
    return value.get<uint64_t>();
  };
  const uint64_t least = countOf("minItems", 0),
                 most = countOf("maxItems", kMostItems);
  if (least > most)
    refuse("maxItems");
  if (most == 0)
    return "\"[]\"";
  std::string items = rule(valueOf(schema["items"]));
  if (most > 1)
    items = joined({items, " (", kComma, items, "){",
                    std::to_string(least > 0 ? least - 1 : 0), ",",
                    most == kMostItems ? "" : std::to_string(most - 1), "}"});
  return rule("\"[\" (" + items + (least > 0 ? ") \"]\"" : ")? \"]\""));
}
