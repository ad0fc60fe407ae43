//===- Conversation.cpp - What a chat protocol asks -----------------------===//

#include "server/Conversation.h"

#include "model/ToolFormat.h"
#include "server/Service.h"

#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

void server::setThinking(ordered_json &variables, bool thinks) {
  variables["enable_thinking"] = thinks;
}

void server::setEffort(ordered_json &variables, const std::string &word) {
  variables["reasoning_effort"] = word;
  if (word == "none")
    setThinking(variables, false);
}

ordered_json server::callArguments(const ordered_json &value) {
  if (value.is_object())
    return value;
  if (const auto *const text = value.get_ptr<const std::string *>())
    try {
      return parseObjectWithDigits(*text, "arguments", kRequestJson);
    } catch (const Error &) {
      return ordered_json::object();
    }
  return ordered_json::object();
}

void server::requireChat(const Service &service) {
  requireLogits(service);
  if (!service.format)
    throw ApiError(400, "the model has no chat template; use /v1/completions");
}

CallOptions server::callsOf(const Conversation &conversation,
                            const CallFormat *format) {
  const ToolChoice &choice = conversation.choice;
  const Conversation::Names &names = conversation.names;
  if (conversation.tools.empty() || choice.kind == ToolChoice::None)
    return {};
  Tools all = toolsOf(conversation.tools, names.tools);
  for (Tool &tool : all)
    if (const auto found = conversation.grammars.find(tool.name);
        found != conversation.grammars.end())
      tool.grammar = found->second;
  const bool isNamed = choice.kind == ToolChoice::Named;
  CallRules rules = {.isRequired = choice.kind != ToolChoice::Auto,
                     .isSingle = !choice.isParallel || isNamed};
  if (isNamed) {
    const Tool *const named = findTool(all, choice.name);
    if (!named)
      throw ApiError(400,
                     names.choice + " has the name " + quote(choice.name) +
                         ", which no tool has",
                     names.choice);
    all = {*named};
  }
  if (rules.isRequired)
    rules.parameter = names.choice;
  else if (rules.isSingle)
    rules.parameter = names.parallel;
  else if (const auto kept = std::ranges::find_if(
               all,
               [](const Tool &tool) { return tool.isStrict || tool.grammar; });
           kept != all.end())
    rules.parameter =
        indexed(names.tools, static_cast<size_t>(kept - all.begin())) +
        (kept->grammar ? names.grammar : names.strict);
  CallOptions options = {format, std::make_shared<Tools>(std::move(all))};
  if (!rules.parameter.empty())
    options.rules = std::move(rules);
  return options;
}

/// The variables of the chat template.
static ordered_json variablesOf(const Service &service,
                                const Conversation &conversation) {
  ordered_json variables = service.templateVariables;
  variables.update(conversation.variables);
  variables["messages"] = turnsFor(service.turns, conversation.messages);
  variables["add_generation_prompt"] =
      conversation.addGenerationPrompt && !conversation.continueFinalMessage;
  return variables;
}

/// Gives a task its only prompt.
static void addPrompt(const Service &service, const Conversation &conversation,
                      GenerationTask &task) {
  const ordered_json &messages = conversation.messages;
  for (size_t i = 0; i < messages.size(); ++i)
    service.checkSize(messages[i]["content"].get_ref<const std::string &>(),
                      indexed(task.input, i));
  service.checkSize(conversation.tools.dump(), conversation.names.tools);
  ordered_json variables = variablesOf(service, conversation);
  task.mayReason = variables.value("enable_thinking", ordered_json()) != false;
  task.calls = callsOf(conversation, service.tools.format);
  if (task.calls.rules && !service.limits.hasGrammars)
    throw ApiError(400,
                   task.calls.rules->parameter +
                       " needs llguidance, which this server was built without",
                   task.calls.rules->parameter);
  if (task.calls.format)
    variables["tools"] = conversation.tools;
  try {
    const ChatFormat::Options how = {.allowSpecial = service.allowSpecial,
                                     .continueFinalMessage =
                                         conversation.continueFinalMessage};
    task.prompts = {service.format->encode(variables, how)};
    if (service.hasSnapshots)
      task.snapshotAt =
          service.format->conversationLength(task.prompts[0], variables, how);
  } catch (const Error &error) {
    throw ApiError(400, error.what(), task.input);
  }
}

/// The tokens that the reasoning ends with when its budget is used up.
static std::vector<int32_t> budgetMessageOf(const Service &service,
                                            const ReasoningParameters &asked) {
  constexpr const char *kParameter = "thinking_budget_message";
  const std::string &message = asked.budgetMessage;
  const auto refuse = [&](const std::string &why) {
    throw ApiError(400, kParameter + (" " + why), kParameter);
  };
  service.checkSize(message, kParameter);
  for (const AnswerFormat::Section &section : service.answers.sections())
    if (message.find(section.close.text) != std::string::npos)
      refuse("must not contain " + std::string(section.close.text));
  std::vector<int32_t> ids = service.tokenizer.encode(message, false);
  if (!ids.empty() && std::ssize(ids) > asked.thinkingBudget.value_or(0))
    refuse("has " + std::to_string(ids.size()) +
           " tokens, which is more than thinking_token_budget");
  return ids;
}

GenerationTask server::taskOf(const Service &service,
                              const AnswerParameters &parameters,
                              const Conversation &conversation) {
  requireChat(service);
  GenerationTask task{.parameters = parameters,
                      .input = conversation.names.messages,
                      .ends = service.format->endTokens(
                          service.manifest.generation.eosTokenIds),
                      .format = &service.answers};
  addPrompt(service, conversation, task);
  task.budgetMessage = budgetMessageOf(service, parameters);
  return task;
}
