//===- GrammarParameters.h - What an answer may be like ---------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_GRAMMARPARAMETERS_H
#define QWEN_RUNTIME_SERVER_GRAMMARPARAMETERS_H

#include "grammar/Grammar.h"
#include "server/Parameters.h"

namespace qwen::server {

/// A grammar, and the parameter that has it.
struct NamedGrammar {
  std::string parameter;
  GrammarSource source;
};

/// The grammar of an answer, in the forms of OpenAI, vLLM and llama-server.
struct GrammarParameters {
  /// One for each parameter that has one; more than one is refused when the
  /// request starts.
  std::vector<NamedGrammar> grammars = {};

  void addGrammar(const nlohmann::ordered_json &value);
  static const ParameterTable table;
};

/// Whether the server keeps what the value of a parameter promises, which only
/// a grammar does. Throws ApiError if it does not and may not ignore it.
bool keepsPromise(const std::string &name, const std::string &value,
                  const ParameterLimits &limits);

/// What addGrammar takes of the value of the parameter `name`, a JSON schema;
/// null if the server ignores it. Throws ApiError.
nlohmann::ordered_json schemaGrammar(const nlohmann::ordered_json &value,
                                     const std::string &name,
                                     const ParameterLimits &limits);
/// The same of a parameter that asks for any JSON object.
nlohmann::ordered_json objectGrammar(const std::string &name,
                                     const ParameterLimits &limits);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_GRAMMARPARAMETERS_H
