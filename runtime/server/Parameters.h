//===- Parameters.h - The parameters of requests ----------------*- C++ -*-===//
//
// A group is a struct with a table of the parameters that set its fields. A
// protocol lists groups; the parser, its errors and /openapi.json are loops
// over their tables.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_PARAMETERS_H
#define QWEN_RUNTIME_SERVER_PARAMETERS_H

#include "server/http/Notes.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace qwen::server {

/// Bounds of the texts that end an answer, and of others.
inline constexpr size_t kMostStops = 64, kMostStopCharacters = 1024;

/// Maximum number of inputs of a request, of choices for one of them, and of
/// choices for all.
inline constexpr int64_t kMostInputs = 2048, kMostChoices = 128,
                         kMostAnswers = 2048;

enum class ParameterKind : uint8_t {
  Boolean,
  /// Also written with a fraction of zero, as 6.0.
  Integer,
  /// An integer of 64 bits, signed or not.
  Seed,
  Number,
  /// A string of `least` to `most` bytes; `most` 0: of any number.
  String,
  /// One of `values`, strings or booleans.
  Word,
  /// A string that names a model of the server.
  Model,
  /// An array of ids.
  Ids,
  /// An object with a number for each id.
  Biases,
  Object,
  /// A string or an array of strings; `most` is their number, or 0 for
  /// kMostStops.
  Strings,
  /// An array of strings of `values`, each at most once.
  Words,
  /// A prompt, or an array of prompts: a string, an object with one, or an
  /// array of ids and strings.
  Prompts,
  /// An object with `members`.
  Flags,
  /// What the protocol reads itself: `own`.
  Own,
  /// Accepted without effect.
  Ignored,
  /// Accepted without effect if it has one of `values`; no other value is
  /// supported.
  Neutral,
};

/// What else is true of a parameter, as bits.
enum ParameterTrait : uint8_t {
  kRequired = 1,
  /// Only models that think have it.
  kOfThinking = 2,
  /// Texts of it may be empty where the model appends a token.
  kOfEmbedding = 4,
};

/// Bounds of a request.
struct ParameterLimits {
  int64_t vocabSize;
  /// Number of hidden values.
  int64_t dimensions = std::numeric_limits<int32_t>::max();
  /// Number of sequences that run.
  int64_t sequences = std::numeric_limits<int32_t>::max();
  /// Names of the model; no names: any name.
  std::vector<std::string> models = {};
  /// Whether the model thinks.
  bool thinks = true;
  /// Why the model calls no tools; empty if it does.
  std::string noTools = {};
  /// Whether there is a library of grammars.
  bool hasGrammars = true;
  /// Whether the model fills in the middle.
  bool fills = true;
  /// Whether a text that is embedded may be empty.
  bool emptyInput = true;
  /// Ignore parameters that are not in a table, and values that are not
  /// supported (Neutral).
  bool ignoreUnknown = false;
  /// Note parameters that are not in a table in place of an error.
  bool noteUnknown = false;
  /// Receives what has no effect; null: nobody does.
  Notes *notes = nullptr;
  /// The values of parameters that a request does not have, by name.
  nlohmann::ordered_json defaults = {};

  /// Whether a parameter that is not in a table is no error.
  bool takesUnknown() const { return ignoreUnknown || noteUnknown; }
  /// Notes that a part of the request has no effect.
  void note(const std::string &line) const {
    if (notes)
      notes->add(line);
  }
};

/// The values of a kind that one protocol has.
struct OwnKind {
  /// Checks the value of the parameter `name`, and returns what is stored, if
  /// the row stores it.
  nlohmann::ordered_json (*read)(const nlohmann::ordered_json &value,
                                 const std::string &name,
                                 const ParameterLimits &limits);
  nlohmann::ordered_json (*schema)(const ParameterLimits &limits);
};

/// A row of a group's table.
struct Parameter {
  std::string_view name;
  ParameterKind kind;
  std::string_view help = "";
  /// Stores a value that has the kind and the range in the group: `at`.
  void (*store)(void *group, const nlohmann::ordered_json &value) = nullptr;
  /// Range of a number.
  double least = 0, most = 0;
  /// A JSON array: the words of a Word, or what Neutral accepts besides null.
  std::string_view values = "[]";
  /// ParameterTrait.
  uint8_t traits = 0;
  /// The limit of an integer, if it is a model's.
  int64_t ParameterLimits::*bound = nullptr;
  const OwnKind *own = nullptr;
  /// Booleans of Flags. One that stores nothing has no effect.
  std::span<const Parameter> members = {};
  /// What programs show it with, as x-group of its schema.
  std::string_view group = "";
};

/// What an object that stands for a prompt calls its text: Jina's word and
/// llama-server's.
inline constexpr std::string_view kPromptTexts[] = {"text", "prompt_string"};

/// The maximum number of strings of a parameter of kind Strings.
inline int64_t mostStrings(const Parameter &row) {
  return row.most > 0 ? static_cast<int64_t>(row.most)
                      : static_cast<int64_t>(kMostStops);
}

/// A rule about several parameters.
struct ParameterRule {
  /// The parameter at fault if the rule does not hold, and why.
  std::string_view name, error;
  bool (*holds)(const nlohmann::ordered_json &body, const void *group);
  /// The rule as a JSON schema of the body. Empty: the schema lacks the rule,
  /// because each rule doubles the cases that a generator of requests sees.
  std::string_view schema = {};
};

/// The table of a group. A row takes the place of one with the same name in an
/// earlier group of the protocol. Of several parameters that set the same
/// value, the last one that a request has holds.
struct ParameterTable {
  std::span<const Parameter> rows;
  std::span<const ParameterRule> rules = {};
};

/// A table, and the group that gets its values.
struct ParameterGroup {
  const ParameterTable *table;
  void *values = nullptr;
};

/// Whether a body has a parameter; null counts as absent.
bool hasParameter(const nlohmann::ordered_json &body, std::string_view name);

/// Throws ApiError if the object `name` has members besides `known`.
void requireMembers(const nlohmann::ordered_json &object,
                    const std::string &name,
                    const std::vector<std::string_view> &known);
/// The same, unless the limits say that such members are ignored or noted.
void requireMembers(const nlohmann::ordered_json &object,
                    const std::string &name,
                    const std::vector<std::string_view> &known,
                    const ParameterLimits &limits);

/// Deals with the parameter, or the member of one, that nobody reads: throws
/// ApiError, notes it or ignores it, as the limits say.
void refuseUnknown(const std::string &name, const ParameterLimits &limits);

/// Reads the JSON text of a request. null counts as absent. Throws ApiError
/// (400, or 404 for another model) with the parameter, the found and the needed
/// value.
void parseParameters(std::string_view body, const ParameterLimits &limits,
                     std::span<const ParameterGroup> groups);

/// JSON schema of a body.
nlohmann::ordered_json parameterSchema(const ParameterLimits &limits,
                                       std::span<const ParameterGroup> groups);

/// A schema of the values of `schema`, and of null.
nlohmann::ordered_json orNull(nlohmann::ordered_json schema);

/// The parameters of a protocol: the tables of `Groups`, bases of its struct,
/// in this order. Each has a static member `table`.
template <typename... Groups> struct ParameterList {
  template <typename T>
  static void parse(std::string_view body, const ParameterLimits &limits,
                    T &to) {
    const ParameterGroup groups[] = {
        {&Groups::table, static_cast<Groups *>(&to)}...};
    parseParameters(body, limits, groups);
  }
  static nlohmann::ordered_json schema(const ParameterLimits &limits) {
    const ParameterGroup groups[] = {{&Groups::table}...};
    return parameterSchema(limits, groups);
  }
};

/// The parameters of a protocol whose clients send others with each release:
/// a parameter that is not in a table is a line of the log, not an error.
template <typename... Groups> struct OpenParameterList {
  template <typename T>
  static void parse(std::string_view body, ParameterLimits limits, T &to,
                    Notes *notes = nullptr) {
    limits.noteUnknown = true;
    limits.notes = notes;
    ParameterList<Groups...>::parse(body, limits, to);
  }
  static nlohmann::ordered_json schema(const ParameterLimits &limits) {
    ParameterLimits open = limits;
    open.noteUnknown = true;
    return ParameterList<Groups...>::schema(open);
  }
};

template <typename T> struct ValueOf {
  using Type = T;
};
template <typename T> struct ValueOf<std::optional<T>> {
  using Type = T;
};

/// Parameter::store for a field of `Group`, or a function of it that takes the
/// JSON value.
template <typename Group, auto Member>
void at(void *group, const nlohmann::ordered_json &value) {
  Group &to = *static_cast<Group *>(group);
  if constexpr (std::is_member_function_pointer_v<decltype(Member)>) {
    (to.*Member)(value);
  } else {
    using Field = std::remove_reference_t<decltype(to.*Member)>;
    to.*Member = value.get<typename ValueOf<Field>::Type>();
  }
}

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PARAMETERS_H
