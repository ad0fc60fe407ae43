//===- GrammarParameters.cpp - What an answer may be like -----------------===//

#include "server/GrammarParameters.h"

#include "grammar/Gbnf.h"
#include "server/http/ApiError.h"

#include "qwen/Support/JsonDigits.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;

//===----------------------------------------------------------------------===//
// Forms of a grammar
//===----------------------------------------------------------------------===//

namespace {
/// A way to write a grammar.
struct Form {
  GrammarKind kind;
  /// The text of the grammar that `value` has. Throws ApiError, which names the
  /// parameter `name`.
  std::string (*read)(J value, const std::string &name);
  /// The JSON schema of the values.
  const char *schema;
};
} // namespace

[[noreturn]] static void refuse(const std::string &name,
                                const std::string &what) {
  throw ApiError(400, name + " " + what, name);
}

static std::string schemaText(J value, const std::string &name) {
  const auto *const text = value.get_ptr<const std::string *>();
  if (!text && !value.is_object() && value != true)
    refuse(name, "must be a JSON schema, or a string with one");
  if (!text)
    return dumpWithDigits(value);
  try {
    return dumpWithDigits(parseObjectWithDigits(*text, name, kRequestJson));
  } catch (const Error &error) {
    throw ApiError(400, error.what(), name);
  }
}

static std::string plainText(J value, const std::string &name) {
  if (!value.is_string() || value == "")
    refuse(name, "must be a string that is not empty");
  return value.get<std::string>();
}

static std::string larkText(J value, const std::string &name) {
  std::string text = plainText(value, name);
  if (!isGbnf(text))
    return text;
  try {
    return larkOfGbnf(text);
  } catch (const Error &error) {
    refuse(name, std::string("is refused: ") + error.what());
  }
}

static std::string choiceText(J value, const std::string &name) {
  const auto isWord = [](J each) { return each.is_string() && each != ""; };
  if (!value.is_array() || value.empty() || !std::ranges::all_of(value, isWord))
    refuse(name, "must be an array of strings, none of them empty");
  return value.dump();
}

static std::string objectText(J value, const std::string &name) {
  if (value != true)
    refuse(name, "must be true");
  return R"({"type": "object"})";
}

static constexpr Form kSchema = {
    GrammarKind::JsonSchema, schemaText,
    R"({"anyOf": [{"type": ["object", "string"]}, {"const": true}]})"};
static constexpr Form kRegex = {GrammarKind::Regex, plainText,
                                R"({"type": "string", "minLength": 1})"};
static constexpr Form kChoice = {GrammarKind::Choice, choiceText,
                                 R"({"type": "array", "minItems": 1,
        "items": {"type": "string", "minLength": 1}})"};
static constexpr Form kLark = {GrammarKind::Lark, larkText,
                               R"({"type": "string", "minLength": 1})"};
static constexpr Form kObject = {GrammarKind::JsonSchema, objectText,
                                 R"({"const": true})"};

namespace {
/// A member of structured_outputs.
struct Member {
  const char *name;
  const Form &form;
};
} // namespace

static constexpr Member kMembers[] = {
    {"json", kSchema},  {"regex", kRegex},        {"choice", kChoice},
    {"grammar", kLark}, {"json_object", kObject},
};

//===----------------------------------------------------------------------===//
// Values of parameters
//===----------------------------------------------------------------------===//

/// What is stored of a grammar; null if the server ignores it.
static ordered_json stored(const Form &form, J value, const std::string &name,
                           const ParameterLimits &limits) {
  const std::string text = form.read(value, name);
  if (limits.hasGrammars)
    return {{"parameter", name}, {"kind", form.kind}, {"text", text}};
  if (!limits.ignoreUnknown)
    refuse(name, "needs llguidance, which this server was built without");
  return nullptr;
}

bool server::keepsPromise(const std::string &name, const std::string &value,
                          const ParameterLimits &limits) {
  if (!limits.hasGrammars && !limits.ignoreUnknown)
    throw ApiError(400,
                   name + " " + value +
                       " needs llguidance, which this server was built without",
                   name);
  return limits.hasGrammars;
}

ordered_json server::schemaGrammar(J value, const std::string &name,
                                   const ParameterLimits &limits) {
  return stored(kSchema, value, name, limits);
}

ordered_json server::objectGrammar(const std::string &name,
                                   const ParameterLimits &limits) {
  return stored(kObject, true, name, limits);
}

void GrammarParameters::addGrammar(J value) {
  if (!value.is_null())
    grammars.push_back(
        {value["parameter"].get<std::string>(),
         {value["kind"].get<GrammarKind>(), value["text"].get<std::string>()}});
}

static ordered_json readFormat(J value, const std::string &name,
                               const ParameterLimits &limits) {
  if (!value.is_object())
    refuse(name, "must be an object");
  requireMembers(value, name, {"type", "json_schema", "schema"}, limits);
  const auto schemaAt = [&](J object, const std::string &inner) {
    if (!object.is_object() || !hasParameter(object, "schema"))
      refuse(inner + ".schema", "is missing");
    return schemaGrammar(object["schema"], inner + ".schema", limits);
  };
  J type = value.value("type", ordered_json());
  if (type == "text")
    return nullptr;
  if (type == "json_object")
    // llama-server's form has a schema here.
    return hasParameter(value, "schema") ? schemaAt(value, name)
                                         : objectGrammar(name, limits);
  if (type != "json_schema")
    refuse(name + ".type", "must be one of text, json_object, json_schema");
  const std::string inner = name + ".json_schema";
  J described = value.value("json_schema", ordered_json());
  if (described.is_object())
    requireMembers(described, inner,
                   {"name", "description", "schema", "strict"}, limits);
  return schemaAt(described, inner);
}

static ordered_json readMembers(J value, const std::string &name,
                                const ParameterLimits &limits) {
  if (!value.is_object())
    refuse(name, "must be an object");
  std::vector<std::string_view> known;
  for (const Member &member : kMembers)
    known.emplace_back(member.name);
  requireMembers(value, name, known, limits);
  ordered_json found;
  for (const auto &[key, form] : kMembers) {
    const std::string inner = name + "." + key;
    if (!hasParameter(value, key) || value[key] == false)
      continue;
    if (!found.is_null())
      refuse(inner, "excludes " + found["parameter"].get<std::string>());
    found = stored(form, value[key], inner, limits);
  }
  return found;
}

/// The schema of values that have a grammar, or `without` one.
static ordered_json schemaOf(const char *schema, const ParameterLimits &limits,
                             ordered_json without) {
  if (limits.ignoreUnknown)
    return ordered_json::object();
  return limits.hasGrammars ? ordered_json::parse(schema) : std::move(without);
}

static constexpr OwnKind kFormat = {
    readFormat, [](const ParameterLimits &limits) {
      return schemaOf(
          R"({"type": "object", "required": ["type"], "additionalProperties": false,
              "properties": {
                "type": {"enum": ["text", "json_object", "json_schema"]},
                "schema": {"description": "A JSON schema, with json_object"},
                "json_schema": {
                  "type": "object", "required": ["schema"],
                  "properties": {
                    "name": {}, "description": {}, "strict": {},
                    "schema": {"anyOf": [{"type": "object"}, {"const": true}]}}}}})",
          limits, {{"enum", ordered_json::array({{{"type", "text"}}})}});
    }};
static constexpr OwnKind kStructured = {
    readMembers, [](const ParameterLimits &limits) {
      ordered_json members = ordered_json::object();
      for (const auto &[key, form] : kMembers)
        members[key] = ordered_json::parse(form.schema);
      const ordered_json schema = {{"type", "object"},
                                   {"maxProperties", 1},
                                   {"properties", members},
                                   {"additionalProperties", false}};
      return schemaOf(schema.dump().c_str(), limits,
                      {{"type", "object"}, {"maxProperties", 0}});
    }};

/// The kind of a parameter whose value is a grammar.
template <const Form &Of>
static constexpr OwnKind kGrammar = {
    [](J value, const std::string &name, const ParameterLimits &limits) {
      return stored(Of, value, name, limits);
    },
    [](const ParameterLimits &limits) {
      return schemaOf(Of.schema, limits, {{"type", "null"}});
    }};

static constexpr Parameter
grammarRow(std::string_view name, std::string_view help, const OwnKind &kind) {
  return {.name = name,
          .kind = Kind::Own,
          .help = help,
          .store = at<GrammarParameters, &GrammarParameters::addGrammar>,
          .own = &kind};
}

// clang-format off
static constexpr Parameter kGrammarRows[] = {
    grammarRow("response_format", "json_schema: the answer is a document of a JSON schema; json_object: it is a JSON object", kFormat),
    grammarRow("structured_outputs",
               "What the answer is: a document of a JSON schema (json), a match of a regular expression (regex), one of some strings "
               "(choice), or a text of a grammar in Lark or GBNF (grammar)", kStructured),
    grammarRow("guided_json", "The same as structured_outputs.json", kGrammar<kSchema>),
    grammarRow("guided_regex", "The same as structured_outputs.regex", kGrammar<kRegex>),
    grammarRow("guided_choice", "The same as structured_outputs.choice", kGrammar<kChoice>),
    grammarRow("guided_grammar", "The same as structured_outputs.grammar", kGrammar<kLark>),
    grammarRow("json_schema", "The same as structured_outputs.json", kGrammar<kSchema>),
    grammarRow("grammar", "The same as structured_outputs.grammar", kGrammar<kLark>),
};
// clang-format on
const ParameterTable GrammarParameters::table = {kGrammarRows};
