//===- SavedConversation.cpp - A conversation as a request ----------------===//

#include "chat/SavedConversation.h"

#include "server/protocols/openai/Chat.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <array>
#include <charconv>

using namespace qwen;
using namespace qwen::run;
using nlohmann::ordered_json;

std::string qwen::run::requestOf(const SavedConversation &saved,
                                 const server::ParameterLimits &limits) {
  ordered_json body = {{"messages", saved.messages}};
  body.update(server::describeSampling(saved.sampling));
  for (const TokenBias &bias : saved.sampling.logitBias) {
    ordered_json &sum = body["logit_bias"][std::to_string(bias.id)];
    sum = bias.bias + (sum.is_null() ? 0 : sum.get<float>());
  }
  body["seed"] = saved.sampling.seed;
  if (saved.count)
    body["max_tokens"] = *saved.count;
  if (!saved.variables.empty())
    body["chat_template_kwargs"] = saved.variables;
  std::string text =
      body.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  // A conversation without a message is no request, but can be loaded again.
  SavedConversation again;
  if (!saved.messages.empty())
    readRequest(text, limits, again);
  return text;
}

void qwen::run::readRequest(std::string_view text,
                            const server::ParameterLimits &limits,
                            SavedConversation &to) {
  server::ChatParameters chat;
  chat.sampling = to.sampling;
  server::ParameterList<server::ModelParameters, server::SamplingParameters,
                        server::ChatParameters>::parse(text, limits, chat);
  to.messages = std::move(chat.messages);
  to.sampling = std::move(chat.sampling);
  to.sampling.seed = chat.seed.value_or(to.sampling.seed);
  if (chat.maxTokens)
    to.count = chat.maxTokens;
  to.variables = chat.templateVariables();
}

void qwen::run::setOption(SamplerOptions &options, const std::string &name,
                          const std::string &value,
                          const server::ParameterLimits &limits) {
  std::string names;
  bool isKnown = false;
  for (const OptionLine &line : describeOptions(options)) {
    names += (names.empty() ? "" : ", ") + line.name;
    isKnown = isKnown || line.name == name;
  }
  if (!isKnown)
    throw Error("there is no option " + quote(name) + "; the options are " +
                names);
  ordered_json number = ordered_json::parse(value, nullptr, false);
  if (!number.is_number())
    throw Error(name + " must be a number, not " + quote(value));
  server::SamplingParameters parameters;
  parameters.sampling = options;
  server::ParameterList<server::SamplingParameters>::parse(
      ordered_json{{name, number}}.dump(), limits, parameters);
  options = parameters.sampling;
}

std::vector<OptionLine>
qwen::run::describeOptions(const SamplerOptions &options) {
  const ordered_json values = server::describeSampling(options);
  return {
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed,  \
                      Help)                                                    \
  {#Name, values[#Name].dump(), Help},
#include "qwen/ABI/SamplerOptions.def"
  };
}
