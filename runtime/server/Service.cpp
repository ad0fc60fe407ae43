//===- Service.cpp - From requests to answers -----------------------------===//

#include "server/Service.h"

#include "grammar/AnswerConstraint.h"
#include "grammar/ToolGrammar.h"
#include "model/SamplerTexts.h"
#include "model/ToolFormat.h"
#include "text/FillTokens.h"

#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <random>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

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

static std::string fingerprintOf(const ArtifactHeader &header) {
  char text[20];
  snprintf(text, sizeof(text), "fp_%016llx",
           static_cast<unsigned long long>(header.headerChecksum));
  return text;
}

static ToolSupport toolSupport(const Model &model, const std::string &name) {
  if (!name.empty() && !findCallFormat(name))
    throw Error("--tool-format must be one of " + callFormatNames() + ", not " +
                quote(name));
  try {
    return {&findToolFormat(model.chatFormat(), name)};
  } catch (const Error &error) {
    return {.reason = error.what()};
  }
}

static std::vector<Engine *>
withOthers(Engine &engine, std::span<const std::unique_ptr<Engine>> others) {
  std::vector<Engine *> all = {&engine};
  for (const auto &other : others)
    all.push_back(other.get());
  return all;
}

Service::Service(const Model &servedModel, Engine &engine,
                 const SchedulerOptions &scheduling,
                 const ServerOptions &options,
                 std::vector<std::string> namesOfKeys,
                 std::span<const std::unique_ptr<Engine>> others,
                 std::shared_ptr<Metrics> kept)
    : artifact(servedModel.artifact()), manifest(artifact.manifest()),
      tokenizer(servedModel.tokenizer()),
      chatTemplate(servedModel.chatTemplate()),
      format(servedModel.hasChatFormat() ? &servedModel.chatFormat() : nullptr),
      answers(servedModel.answerFormat()),
      tools(toolSupport(servedModel, options.toolFormat)),
      turns(format ? turnRulesOf(*format) : TurnRules()),
      hasSnapshots(engine.state().maxSnapshots() > 0),
      sequences(engine.state().maxSequences() * (1 + std::ssize(others))),
      allowSpecial(options.allowSpecial), keyNames(std::move(namesOfKeys)),
      needsKey(!keyNames.empty()), keysShareCache(options.keysShareCache),
      hasPage(!options.noPage),
      templateVariables(parseJsonObject<ordered_json>(
          options.templateVariables, "--chat-template-kwargs")),
      names(namesOf(options.names, manifest.model.name)),
      fingerprint(fingerprintOf(artifact.header())),
      identity(servedModel.identity()),
      limits(
          {.vocabSize = manifest.model.vocabSize,
           .dimensions = manifest.model.hiddenSize,
           .sequences =
               std::min<int64_t>(engine.state().maxSequences(), kMostBeams),
           .models = isAny(options.names) ? std::vector<std::string>() : names,
           .thinks = answers.reasons(),
           .noTools = tools.reason,
           .hasGrammars = hasGrammars(),
           .fills = FillTokens::of(tokenizer).has_value(),
           .emptyInput = tokenizer.appendedToken().has_value(),
           .ignoreUnknown = options.ignoreUnknown,
           .defaults = describeSampling(samplerOptions(manifest.generation))}),
      mostBytes(tokenizer.mostBytes(manifest.model.context)),
      store(scheduling.batcher.store),
      keptMetrics(kept ? std::move(kept) : std::make_shared<Metrics>()),
      metrics(*keptMetrics), schedulers(withOthers(engine, others), scheduling),
      grammarThreads(limits.hasGrammars ? GrammarThreads::kThreads : 0,
                     scheduling.onStep) {}

Service::~Service() { metrics.past += schedulers.counts().sums; }

Reply Service::replyTo(HttpRequest request, const Framing &framing,
                       const WakeFn &wake) {
  if (request.method == "OPTIONS")
    return optionsReply(routeTable(), request.path);
  RouteMatch match = routeTable().find(request.method, request.path);
  if (match.route.parameters)
    checkBody(request);
  request.parameter = std::move(match.parameter);
  Parsed parsed = match.route.parse(*this, request);
  if (auto *const reply = std::get_if<Reply>(&parsed))
    return std::move(*reply);
  return start(std::get<Exchange>(std::move(parsed)), framing, request, wake);
}

Reply Service::handle(HttpRequest request, const WakeFn &wake) {
  const Framing &framing = framingOf(request.path);
  try {
    Notes notes;
    request.notes = &notes;
    Reply reply = replyTo(std::move(request), framing, wake);
    reply.notes = notes.take();
    return reply;
  } catch (const Error &error) {
    return framing.error(asApiError(error));
  } catch (const std::bad_alloc &) {
    return framing.error({503, "out of memory"});
  }
}

//===----------------------------------------------------------------------===//
// Generations
//===----------------------------------------------------------------------===//

void server::requireLogits(const Service &service) {
  service.manifest.model.output.requireLogits(service.model());
}

void Service::requireRunning() const {
  if (draining)
    throw ApiError(503, "the server is shutting down");
}

void Service::checkSize(const std::string &text,
                        const std::string &parameter) const {
  if (text.size() > mostBytes)
    throw ApiError(400,
                   (parameter.ends_with(']') ? "" : "the ") + parameter +
                       " has " + std::to_string(text.size()) +
                       " bytes, which is more than " +
                       std::to_string(manifest.model.context) + " tokens",
                   parameter, ErrorCode::LongContext);
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
                 parameter, ErrorCode::LongContext);
  error.lengths = {.prompt = tokens, .context = model.context};
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

/// Refuses what a request and its beam search do not do together.
static void checkBeams(const AnswerParameters &parameters) {
  const BeamOptions &beams = parameters.beams;
  const auto refuse = [](const std::string &name, const std::string &needed) {
    throw ApiError(400, name + " must be " + needed, name);
  };
  const std::string search = " with num_beams";
  if (const auto refused = beams.refusal(parameters.choices))
    refuse(refused->option == kBeamAnswers ? "n" : std::string(refused->option),
           refused->needed + ", not " + refused->found);
  if (!beams.isSearch()) {
    if (beams.lengthPenalty != BeamOptions().lengthPenalty)
      refuse("length_penalty", "1 without num_beams");
    if (beams.earlyStopping != EarlyStopping::False)
      refuse("early_stopping", "false without num_beams");
    return;
  }
  // They need what is not there before a search ends.
  if (!parameters.stop.empty())
    refuse("stop", "empty" + search + "; stop_token_ids ends beams");
  if (parameters.thinkingBudget)
    refuse("thinking_token_budget", "-1" + search);
  if (parameters.topLogprobs)
    refuse("top_logprobs", "0" + search);
}

/// Refuses what a request has beside its grammar.
static void checkGrammars(const GenerationTask &task) {
  const AnswerParameters &parameters = task.parameters;
  const std::vector<NamedGrammar> &grammars = parameters.grammars;
  const auto refuse = [&](const std::string &name, const std::string &other) {
    throw ApiError(400, name + " excludes " + other, name);
  };
  const std::string name = task.grammarParameter();
  if (name.empty())
    return;
  if (parameters.beams.isSearch())
    refuse(name, "num_beams");
  // They may leave no token of those that the grammar allows.
  if (!parameters.sampling.texts.badWords.empty())
    refuse(name, "bad_words");
  if (parameters.sampling.noRepeatNgram > 0)
    refuse(name, "no_repeat_ngram_size");
  if (grammars.size() > 1)
    refuse(name, grammars[1].parameter);
  if (!grammars.empty() && task.calls.format)
    refuse(name, "tools that the answer may call; tool_choice none leaves them "
                 "out");
}

const GrammarCompiler &Service::compilerFor(const AnswerFormat *of) {
  requireMarks(of);
  std::call_once(grammarsMade, [&] {
    std::vector<int32_t> ends = manifest.generation.eosTokenIds;
    if (format)
      ends = format->endTokens(std::move(ends));
    grammars = makeGrammarCompiler(tokenizer, ends);
  });
  return *grammars;
}

std::shared_ptr<const Grammar>
Service::grammarOf(const Generation &generation) {
  const GenerationTask &task = generation.task();
  const std::stop_token stop = generation.stopSource().get_token();
  const std::vector<NamedGrammar> &named = task.parameters.grammars;
  const std::string parameter = task.grammarParameter();
  try {
    const GrammarCompiler &compiler = compilerFor(task.format);
    return named.empty() ? makeToolGrammar(compiler, task.calls,
                                           CallMarks::of(tokenizer), stop)
                         : compiler.compile(named[0].source, stop);
  } catch (const Error &error) {
    if (error.kind() == ErrorKind::Cancelled)
      throw ApiError(503, "the server cancelled the request");
    if (error.kind() == ErrorKind::NoMemory)
      throw;
    throw ApiError(400, parameter + " cannot be kept: " + error.what(),
                   parameter);
  }
}

void Service::startWithGrammar(Generation &generation) {
  try {
    generation.start(grammarOf(generation));
  } catch (const Error &error) {
    generation.refuse(asApiError(error));
  } catch (const std::bad_alloc &) {
    generation.refuse({503, "out of memory"});
  }
}

RootRef Service::rootOf(const HttpRequest &request, const std::string &salt) {
  Root root{.artifact = identity, .salt = salt};
  if (request.key && !keysShareCache)
    root.key = keyNames.at(*request.key);
  return roots.intern(std::move(root));
}

Reply Service::start(Exchange exchange, const Framing &framing,
                     const HttpRequest &request, const WakeFn &wake) {
  GenerationTask &task = exchange.task;
  AnswerParameters &parameters = task.parameters;
  requireRunning();
  if (const auto count = std::ssize(task.prompts) * parameters.choices;
      count > kMostAnswers)
    throw ApiError(400,
                   "n must make at most " + std::to_string(kMostAnswers) +
                       " choices of all prompts, not " + std::to_string(count),
                   "n");
  checkBeams(parameters);
  checkGrammars(task);
  checkPrompts(task);
  const bool hasGrammar = !task.grammarParameter().empty();
  if (!parameters.seed)
    parameters.seed = request.seed;
  if (!parameters.seed) {
    std::random_device device;
    parameters.seed = (uint64_t{device()} << 32 | device()) >> 11;
  }
  resolveTexts(tokenizer, parameters.sampling);
  task.root = rootOf(request, parameters.cacheSalt);
  Scheduler &scheduler = schedulers.choose(task.prompts.front(), task.root);
  auto generation = std::make_shared<Generation>(std::move(task), tokenizer,
                                                 scheduler, metrics, wake);
  exchange.answer->begin(generation, framing);
  if (hasGrammar)
    grammarThreads.run(generation->stopSource(),
                       [this, generation] { startWithGrammar(*generation); });
  else
    generation->start();
  return {.body = "", .stream = std::move(exchange.answer)};
}

std::vector<int32_t> Service::idsOf(const MixedPrompt &mixed,
                                    const std::string &name) const {
  std::vector<int32_t> ids;
  for (const auto &part : mixed)
    if (const auto *text = std::get_if<std::string>(&part)) {
      checkSize(*text, name);
      const std::vector<int32_t> more = tokenizer.encode(*text);
      ids.insert(ids.end(), more.begin(), more.end());
    } else {
      ids.push_back(std::get<int32_t>(part));
    }
  return ids;
}

void Service::addPrompts(
    const std::vector<PromptValue> &prompts, GenerationTask &task,
    const std::function<std::vector<int32_t>(const std::string &)> &encode)
    const {
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (const auto *ids = std::get_if<std::vector<int32_t>>(&prompts[i])) {
      task.prompts.push_back(*ids);
      continue;
    }
    if (const auto *mixed = std::get_if<MixedPrompt>(&prompts[i])) {
      task.prompts.push_back(idsOf(*mixed, task.nameOf(i)));
      continue;
    }
    const auto &text = std::get<std::string>(prompts[i]);
    checkSize(text, task.nameOf(i));
    task.prompts.push_back(encode(text));
  }
}

std::string Service::metricsOfModel() const {
  return metrics.text(
      schedulers.counts(), schedulers.pages(),
      store ? std::optional(store->counts(identity)) : std::nullopt, model());
}

std::string Service::metricsText() const {
  return metricsOfModel() + (store ? storeMetrics(store->size()) : "");
}
