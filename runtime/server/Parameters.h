//===- Parameters.h - The parameters of requests ----------------*- C++ -*-===//
//
// One table holds all parameters of all endpoints. The parser, its errors and
// /openapi.json are loops over it.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_PARAMETERS_H
#define QWEN_RUNTIME_SERVER_PARAMETERS_H

#include "engine/Sampler.h"
#include "text/Retrieval.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace qwen::server {

/// A text, or token ids.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

/// The values of a request. What a request does not set has its default.
struct Parameters {
  /// The default of `sampling` is the model's.
  explicit Parameters(const SamplerOptions &sampling) : sampling(sampling) {}

  std::string model;
  /// Each has a "role" and a "content", which is a string.
  nlohmann::ordered_json messages;
  std::vector<Prompt> prompts;
  /// Whether the prompts came as a list, whose elements errors name.
  bool hasPromptList = false;
  SamplerOptions sampling;
  std::optional<uint64_t> seed;
  std::optional<int64_t> maxTokens;
  int64_t choices = 1;
  std::vector<std::string> stop;
  std::vector<int32_t> stopTokens;
  bool ignoreEos = false;
  bool includeStop = false;
  bool skipSpecial = true;
  bool echo = false;
  bool logprobs = false;
  int64_t topLogprobs = 0;
  bool tokensAsIds = false;
  bool returnTokenIds = false;
  std::optional<int64_t> truncatePrompt;
  bool stream = false;
  bool includeUsage = false;
  bool continuousUsage = false;
  bool returnProgress = false;
  bool addGenerationPrompt = true;
  bool continueFinalMessage = false;
  /// Further variables of the chat template.
  nlohmann::ordered_json templateVariables = nlohmann::ordered_json::object();
  bool noThinking = false;
  /// Whether an answer has its reasoning apart from its content.
  bool splitReasoning = true;
  std::optional<int64_t> thinkingBudget;
  std::string cacheSalt;
  int32_t priority = 0;
  /// /tokenize.
  bool addSpecial = false, parseSpecial = true, withPieces = false;
  /// /detokenize.
  std::vector<int32_t> tokens;
  /// /v1/embeddings.
  bool base64 = false;
  std::optional<int64_t> dimensions;
  /// /v1/rerank.
  std::string query;
  std::vector<std::string> documents;
  std::string instruction = Reranker::kInstruction;
  std::optional<int64_t> topCount;
  bool returnDocuments = false;
};

/// Bounds of the texts that end an answer.
inline constexpr size_t kMostStops = 64, kMostStopCharacters = 1024;

/// The sets of parameters, as bits.
enum ParameterSet : uint8_t {
  kChatParameters = 1,
  kCompletionParameters = 2,
  kTokenizeParameters = 4,
  kDetokenizeParameters = 8,
  kEmbeddingParameters = 16,
  kRerankParameters = 32,
};

enum class ParameterKind : uint8_t {
  Boolean,
  /// Also written with a fraction of zero, as 6.0.
  Integer,
  /// An integer of 64 bits, signed or not.
  Seed,
  Number,
  /// A string of at least `least` bytes.
  String,
  /// One of the strings of `values`.
  Word,
  /// A string that names a model of the server.
  Model,
  /// An array of ids.
  Ids,
  /// An object with a number for each id.
  Biases,
  Object,
  /// A string or an array of strings.
  Strings,
  /// A string, an array of strings, an array of ids, or an array of arrays of
  /// ids.
  Prompts,
  /// An array of strings, or of objects with a "text".
  Documents,
  Messages,
  /// An object with the members of streamOptions.
  StreamOptions,
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
};

/// Maximum number of inputs of a request, of choices for one of them, and of
/// choices for all.
inline constexpr int64_t kMostInputs = 2048, kMostChoices = 128,
                         kMostAnswers = 2048;

/// Bounds of a request.
struct ParameterLimits {
  int64_t vocabSize;
  /// Number of hidden values.
  int64_t dimensions = std::numeric_limits<int32_t>::max();
  /// Names of the model; no names: any name.
  std::vector<std::string> models = {};
  /// Whether the model thinks.
  bool thinks = true;
  /// Whether a text that is embedded may be empty.
  bool emptyInput = true;
  /// Ignore parameters that are not in the table, and values that are not
  /// supported (Neutral).
  bool ignoreUnknown = false;
};

/// Short names for the sources of the table, whose rows are long.
namespace table {
using P = Parameters;
using J = const nlohmann::ordered_json &;
using Kind = ParameterKind;
} // namespace table

/// A row of the table.
struct Parameter {
  std::string_view name;
  ParameterKind kind;
  /// ParameterSet.
  uint8_t sets;
  std::string_view help;
  /// Range of a number.
  double least = 0, most = 0;
  /// Stores a value that has the kind and the range.
  void (*store)(Parameters &to, const nlohmann::ordered_json &value) = nullptr;
  /// A JSON array: the words of a Word, or what Neutral accepts besides null.
  std::string_view values = "[]";
  /// ParameterTrait.
  uint8_t traits = 0;
  /// The limit of an integer, if it is a model's.
  int64_t ParameterLimits::*bound = nullptr;
};

/// Of several parameters that set the same value, the last one of the table
/// that a request has holds.
std::span<const Parameter> parameterTable();

/// A member of "stream_options", which is a boolean.
struct StreamOption {
  std::string_view name;
  std::string_view help;
  /// Null if it has no effect.
  bool Parameters::*flag;
};

std::span<const StreamOption> streamOptions();

/// A rule about several parameters.
struct ParameterRule {
  /// ParameterSet.
  uint8_t sets;
  /// The parameter at fault if the rule does not hold, and why.
  std::string_view name, error;
  bool (*holds)(const nlohmann::ordered_json &body, const Parameters &values);
  /// The rule as a JSON schema of the body.
  std::string_view schema;
};

std::span<const ParameterRule> parameterRules();

/// Whether a body has a parameter; null counts as absent.
bool hasParameter(const nlohmann::ordered_json &body, std::string_view name);

/// Reads the JSON text of a request with the parameters of one set into `to`.
/// null counts as absent. Throws ApiError (400, or 404 for another model) with
/// the parameter, the found and the needed value.
void parseParameters(std::string_view body, ParameterSet set,
                     const ParameterLimits &limits, Parameters &to);

/// JSON schema of a body with the parameters of one set.
nlohmann::ordered_json parameterSchema(ParameterSet set,
                                       const ParameterLimits &limits);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PARAMETERS_H
