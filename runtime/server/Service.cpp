//===- Service.cpp - The endpoints of the server --------------------------===//

#include "server/Service.h"

#include "server/AnswerWriter.h"
#include "server/Routes.h"

#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"
#include "qwen/Support/Version.h"
#include "text/Unicode.h"

#include <algorithm>
#include <random>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

Reply server::errorReply(const ApiError &error) {
  Reply reply{.status = error.status(),
              .body = dump(error.object()),
              .headers = error.headers};
  if (error.status() == 429 || error.status() == 503)
    reply.headers.emplace_back(AnswerHeader::RetryAfter, "1");
  if (error.status() == 401)
    reply.headers.emplace_back(AnswerHeader::WwwAuthenticate, "Bearer");
  return reply;
}

/// Whether one of the names is "*", which is any name.
static bool isAny(const std::vector<std::string> &names) {
  return std::ranges::count(names, "*") > 0;
}

/// The names besides "*", or `other` if there is none.
static std::vector<std::string> namesOf(std::vector<std::string> names,
                                        const std::string &other) {
  std::erase(names, "*");
  if (names.empty())
    names.push_back(other);
  return names;
}

Service::Service(const Model &model, Scheduler &requestScheduler,
                 const ServerOptions &options, bool keyIsNeeded)
    : artifact(model.artifact()), manifest(artifact.manifest()),
      tokenizer(model.tokenizer()),
      mostBytes(tokenizer.mostBytes(manifest.model.context)),
      format(model.hasChatFormat() ? &model.chatFormat() : nullptr),
      answers(tokenizer, artifact.chatTemplate()), scheduler(requestScheduler),
      pages(model.engine().state().pages()),
      hasSnapshots(model.engine().state().maxSnapshots() > 0),
      allowSpecial(options.allowSpecial), needsKey(keyIsNeeded),
      templateVariables(parseJsonObject<ordered_json>(
          options.templateVariables, "--chat-template-kwargs")),
      names(namesOf(options.names, manifest.model.name)),
      limits(
          {.vocabSize = manifest.model.vocabSize,
           .dimensions = manifest.model.hiddenSize,
           .models = isAny(options.names) ? std::vector<std::string>() : names,
           .thinks = answers.reasons(),
           .emptyInput = tokenizer.appendedToken().has_value(),
           .ignoreUnknown = options.ignoreUnknown}) {}

static Reply optionsReply(const std::string &path) {
  const std::string methods = methodsOf(path);
  if (methods.empty())
    throw ApiError(404, "no such path: " + quote(path));
  return {.body = "", .headers = {{AnswerHeader::Allow, methods}}};
}

/// Throws ApiError for a body that is not JSON as it is. Pages of any origin
/// can send bodies of other types, or of none, without a preflight.
static void checkBody(const HttpRequest &request) {
  if (!equalsNoCase(mediaTypeOf(request.contentType), "application/json"))
    throw ApiError(400, "the content type must be application/json, not " +
                            quote(request.contentType));
  if (request.body.empty())
    throw ApiError(400, "the body is empty when a JSON object is needed");
  if (request.contentEncoding.empty() ||
      equalsNoCase(request.contentEncoding, "identity"))
    return;
  ApiError error(415, "the content encoding " + quote(request.contentEncoding) +
                          " is not supported; send the body without "
                          "compression and without Content-Encoding");
  error.headers.emplace_back(AnswerHeader::AcceptEncoding, "identity");
  throw ApiError(error);
}

Reply Service::handle(HttpRequest request, const WakeFn &wake) {
  try {
    if (request.method == "OPTIONS")
      return optionsReply(request.path);
    RouteMatch match = findRoute(request.method, request.path);
    if (match.route.parameters)
      checkBody(request);
    request.parameter = std::move(match.parameter);
    return (this->*match.route.answer)(request, wake);
  } catch (const Error &error) {
    return errorReply(asApiError(error));
  } catch (const std::bad_alloc &) {
    return errorReply({503, "out of memory"});
  }
}

//===----------------------------------------------------------------------===//
// Generations
//===----------------------------------------------------------------------===//

void Service::requireRunning() const {
  if (draining)
    throw ApiError(503, "the server is shutting down");
}

Parameters Service::parse(const HttpRequest &request, ParameterSet set) const {
  Parameters parameters(samplerOptions(manifest.generation));
  parseParameters(request.body, set, limits, parameters);
  return parameters;
}

void Service::checkSize(const std::string &text,
                        const std::string &parameter) const {
  if (text.size() > mostBytes)
    throw ApiError(400,
                   (parameter.ends_with(']') ? "" : "the ") + parameter +
                       " has " + std::to_string(text.size()) +
                       " bytes, which is more than " +
                       std::to_string(manifest.model.context) + " tokens",
                   parameter, "context_length_exceeded");
}

/// The error of a prompt with more tokens than the context, in the words by
/// which clients know it, with both numbers.
static ApiError tooLong(const std::string &parameter, int64_t tokens,
                        const ModelInfo &model) {
  ApiError error(400,
                 "this model's maximum context length is " +
                     std::to_string(model.context) + " tokens, but " +
                     parameter + " has " + std::to_string(tokens) + "; " +
                     model.describeContext(),
                 parameter, "context_length_exceeded");
  error.extra = {{"n_prompt_tokens", tokens}, {"n_ctx", model.context}};
  return error;
}

void Service::checkPrompts(GenerationTask &task) const {
  const auto most = task.parameters.truncatePrompt;
  for (size_t i = 0; i < task.prompts.size(); ++i) {
    std::vector<int32_t> &prompt = task.prompts[i];
    if (most && std::ssize(prompt) > *most)
      prompt.erase(prompt.begin(), prompt.end() - *most);
    if (prompt.empty())
      throw ApiError(400, task.nameOf(i) + " is empty", task.nameOf(i));
    if (std::ssize(prompt) > manifest.model.context)
      throw tooLong(task.nameOf(i), std::ssize(prompt), manifest.model);
  }
}

Reply Service::generate(GenerationTask task, const WakeFn &wake) {
  Parameters &parameters = task.parameters;
  requireRunning();
  if (const auto count = std::ssize(task.prompts) * parameters.choices;
      count > kMostAnswers)
    throw ApiError(400,
                   "n must make at most " + std::to_string(kMostAnswers) +
                       " choices of all prompts, not " + std::to_string(count),
                   "n");
  checkPrompts(task);
  if (!parameters.seed) {
    std::random_device device;
    parameters.seed = (uint64_t{device()} << 32 | device()) >> 11;
  }
  // 0 is the salt of requests without one.
  if (!parameters.cacheSalt.empty())
    task.salt = std::hash<std::string>()(parameters.cacheSalt) | 1;
  auto generation = std::make_shared<Generation>(std::move(task), tokenizer,
                                                 scheduler, metrics, wake);
  generation->start();
  return {.body = "", .generation = generation};
}

void Service::addChatPrompt(GenerationTask &task) const {
  const Parameters &parameters = task.parameters;
  if (!format)
    throw ApiError(400, "the model has no chat template; use /v1/completions");
  for (size_t i = 0; i < parameters.messages.size(); ++i)
    checkSize(parameters.messages[i]["content"].get_ref<const std::string &>(),
              indexed("messages", i));
  ordered_json variables = templateVariables;
  if (parameters.noThinking)
    variables["enable_thinking"] = false;
  variables.update(parameters.templateVariables);
  variables["messages"] = parameters.messages;
  variables["add_generation_prompt"] =
      parameters.addGenerationPrompt && !parameters.continueFinalMessage;
  try {
    const ChatFormat::Options how = {.allowSpecial = allowSpecial,
                                     .continueFinalMessage =
                                         parameters.continueFinalMessage};
    task.prompts = {format->encode(variables, how)};
    if (hasSnapshots)
      task.snapshotAt =
          format->conversationLength(task.prompts[0], variables, how);
  } catch (const Error &error) {
    throw ApiError(400, error.what(), "messages");
  }
}

Reply Service::chat(const HttpRequest &request, const WakeFn &wake) {
  manifest.model.output.requireLogits(model());
  GenerationTask task{.parameters = parse(request, kChatParameters),
                      .kind = AnswerKind::Chat,
                      .prompts = {},
                      .ends = {},
                      .format = &answers};
  addChatPrompt(task);
  task.ends = format->endTokens(manifest.generation.eosTokenIds);
  return generate(std::move(task), wake);
}

void Service::addPrompts(GenerationTask &task) const {
  const std::vector<Prompt> &prompts = task.parameters.prompts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (const auto *ids = std::get_if<std::vector<int32_t>>(&prompts[i])) {
      task.prompts.push_back(*ids);
      continue;
    }
    const auto &text = std::get<std::string>(prompts[i]);
    checkSize(text, task.nameOf(i));
    task.prompts.push_back(task.kind == AnswerKind::Embedding
                               ? embeddingPrompt(tokenizer, text)
                               : tokenizer.encode(text));
  }
}

Reply Service::complete(const HttpRequest &request, const WakeFn &wake) {
  constexpr int64_t kDefaultTokens = 16;
  manifest.model.output.requireLogits(model());
  GenerationTask task{.parameters = parse(request, kCompletionParameters),
                      .kind = AnswerKind::Completion,
                      .prompts = {},
                      .ends = manifest.generation.eosTokenIds};
  Parameters &parameters = task.parameters;
  parameters.maxTokens = parameters.maxTokens.value_or(kDefaultTokens);
  addPrompts(task);
  return generate(std::move(task), wake);
}

Reply Service::embed(const HttpRequest &request, const WakeFn &wake) {
  manifest.model.output.requireEmbedding(model());
  GenerationTask task{.parameters = parse(request, kEmbeddingParameters),
                      .kind = AnswerKind::Embedding,
                      .prompts = {},
                      .ends = {}};
  addPrompts(task);
  return generate(std::move(task), wake);
}

Reply Service::rerank(const HttpRequest &request, const WakeFn &wake) {
  // As many bytes as a body has by default.
  constexpr size_t kMostRepeated = size_t{32} << 20;
  GenerationTask task{.parameters = parse(request, kRerankParameters),
                      .kind = AnswerKind::Rerank,
                      .prompts = {},
                      .ends = {}};
  task.reranker.emplace(tokenizer, manifest.model.output, model());
  const Parameters &parameters = task.parameters;
  checkSize(parameters.instruction, "instruction");
  checkSize(parameters.query, "query");
  const auto &documents = parameters.documents;
  // Each document has them in its prompt.
  const size_t repeated =
      parameters.instruction.size() + parameters.query.size();
  if (repeated * documents.size() > kMostRepeated)
    throw ApiError(400,
                   "query and instruction have " + std::to_string(repeated) +
                       " bytes, which is too much for " +
                       std::to_string(documents.size()) +
                       " documents; send fewer at a time",
                   "query");
  for (size_t i = 0; i < documents.size(); ++i) {
    checkSize(documents[i], task.nameOf(i));
    task.prompts.push_back(task.reranker->prompt(
        parameters.instruction, parameters.query, documents[i]));
  }
  return generate(std::move(task), wake);
}

//===----------------------------------------------------------------------===//
// Other answers
//===----------------------------------------------------------------------===//

ordered_json Service::modelObject(const std::string &name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "qwen-run"},
          {"max_model_len", manifest.model.context}};
}

Reply Service::models(const HttpRequest &, const WakeFn &) {
  ordered_json list = ordered_json::array();
  for (const std::string &name : names)
    list.push_back(modelObject(name));
  return {.body = dump({{"object", "list"}, {"data", list}})};
}

Reply Service::oneModel(const HttpRequest &request, const WakeFn &) {
  const std::string &asked = request.parameter;
  if (!limits.models.empty() && !std::ranges::count(limits.models, asked))
    throw ApiError(404, "no such model: " + quote(asked), "model",
                   "model_not_found");
  return {.body = dump(modelObject(asked))};
}

Reply Service::health(const HttpRequest &, const WakeFn &) {
  requireRunning();
  return {.body = dump({{"status", "ok"}})};
}

Reply Service::live(const HttpRequest &, const WakeFn &) {
  return {.body = dump({{"status", "ok"}})};
}

Reply Service::version(const HttpRequest &, const WakeFn &) {
  return {.body = dump({{"version", projectVersion()}})};
}

/// A token and its part of the text: a string, or bytes that are not UTF-8.
static ordered_json pieceOf(const Tokenizer &tokenizer, int32_t id) {
  const std::string bytes(bytesOf(tokenizer, id));
  ordered_json piece = bytes;
  if (!isValidUtf8(bytes))
    piece = std::vector<uint8_t>(bytes.begin(), bytes.end());
  return {{"id", id}, {"piece", piece}};
}

Reply Service::tokenize(const HttpRequest &request, const WakeFn &) {
  const Parameters parameters = parse(request, kTokenizeParameters);
  const auto &text = std::get<std::string>(parameters.prompts.front());
  checkSize(text, "prompt");
  std::vector<int32_t> ids = tokenizer.encode(text, parameters.parseSpecial);
  if (const auto last = tokenizer.appendedToken();
      last && parameters.addSpecial)
    ids.push_back(*last);
  ordered_json tokens = ids;
  if (parameters.withPieces)
    for (ordered_json &token : tokens)
      token = pieceOf(tokenizer, token);
  return {.body = dump({{"tokens", tokens},
                        {"count", ids.size()},
                        {"max_model_len", manifest.model.context}})};
}

Reply Service::detokenize(const HttpRequest &request, const WakeFn &) {
  std::string text;
  for (int32_t id : parse(request, kDetokenizeParameters).tokens)
    text += bytesOf(tokenizer, id);
  return {.body = dump({{"prompt", text}, {"content", text}})};
}

Reply Service::tokenizerInfo(const HttpRequest &, const WakeFn &) {
  const auto spelling = [&](std::optional<int32_t> id) {
    return id ? ordered_json(tokenizer.tokenBytes(*id)) : ordered_json();
  };
  return {.body = dump({{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"bos_token", spelling(tokenizer.bosToken())},
                        {"eos_token", spelling(tokenizer.eosToken())},
                        {"pad_token", spelling(tokenizer.padToken())},
                        {"vocab_size", tokenizer.vocabSize()},
                        {"model_max_length", manifest.model.context},
                        {"chat_template", artifact.chatTemplate()}})};
}

Reply Service::metricsText(const HttpRequest &, const WakeFn &) {
  return {.body = metrics.text(scheduler.counts(), pages, model()),
          .contentType = "text/plain; version=0.0.4"};
}
