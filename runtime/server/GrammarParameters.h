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

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_GRAMMARPARAMETERS_H
