//===- Generation.cpp - The answers to one HTTP request -------------------===//

#include "server/Generation.h"

#include "engine/SteadyClock.h"
#include "text/Unicode.h"

#include <algorithm>
#include <utility>

using namespace qwen;
using namespace qwen::server;

/// The bytes of a stream with which a generation waits for its client, and the
/// maximum number of an answer that is sent as a whole.
static constexpr size_t kHeldBytes = size_t{64} << 10,
                        kMostAnswerBytes = size_t{256} << 20;

std::string GenerationTask::nameOf(size_t prompt) const {
  return isList ? indexed(input, prompt) : input;
}

std::string GenerationTask::grammarParameter() const {
  if (!parameters.grammars.empty())
    return parameters.grammars[0].parameter;
  return calls.rules ? calls.rules->parameter : "";
}

Generation::Generation(GenerationTask task, const Tokenizer &textTokenizer,
                       Scheduler &requestScheduler, Metrics &serverMetrics,
                       WakeFn wakeConnection)
    : what(std::move(task)), tokenizer(textTokenizer),
      scheduler(requestScheduler), metrics(serverMetrics),
      wake(std::move(wakeConnection)), startTime(steadyNanoseconds()),
      states(what.prompts.size() *
             static_cast<size_t>(what.parameters.choices)) {}

double Generation::elapsed() const {
  return static_cast<double>(steadyNanoseconds() - startTime) * 1e-9;
}

Request Generation::requestOf(size_t choice) {
  const AnswerParameters &parameters = what.parameters;
  Request request;
  request.prompt.ids = what.prompts[promptOf(choice)];
  request.prompt.root = what.root;
  request.sampling = parameters.sampling;
  request.sampling.seed = *parameters.seed;
  request.answer = choice % static_cast<size_t>(parameters.choices);
  request.maxTokens = parameters.maxTokens.value_or(request.maxTokens);
  request.stopTokens = ends();
  request.isEnd = [self = shared_from_this(), choice](int32_t id) {
    return self->states[choice]->parser.hasStopToken() ||
           std::ranges::count(self->modelEnds(), id);
  };
  request.priority = parameters.priority;
  request.snapshotAt = what.snapshotAt;
  if (parameters.logprobs)
    request.logprobs = parameters.topLogprobs;
  request.scorePrompt = parameters.logprobs && parameters.echo;
  request.onStart = [self = shared_from_this(), choice] {
    self->states[choice]->times.start = self->elapsed();
  };
  request.beams = parameters.beams;
  if (grammar) {
    const auto constraint = std::make_shared<AnswerConstraint>(
        grammar->start(), states[choice]->parser, what.format, what.ends);
    request.constraint = constraint;
    states[choice]->constraint = constraint;
  }
  request.onToken = [self = shared_from_this(), choice](const auto &event) {
    bool goesOn = true;
    for (size_t i = 0; i < self->choicesOfRequest(); ++i)
      goesOn &= self->onToken(choice + i, event);
    return goesOn;
  };
  if (parameters.beams.isSearch()) {
    request.answers = parameters.choices;
    request.onAnswers = [self = shared_from_this(),
                         choice](std::span<const BeamTokens> answers) {
      self->onAnswers(choice, answers);
    };
  }
  request.onEnd = [self = shared_from_this(), choice](const Ending &ending) {
    self->onEnd(choice, ending);
  };
  if (parameters.stream)
    request.isHeld = [self = shared_from_this()] { return self->isHeld(); };
  if (what.keep)
    request.rows = {what.rowKind, [self = shared_from_this(),
                                   choice](std::span<const float> row) {
                      self->states[choice]->kept = self->what.keep(row);
                    }};
  if (parameters.returnProgress)
    request.onProgress = [self = shared_from_this(),
                          choice](const Progress &progress) {
      self->onProgress(choice, progress);
    };
  if (parameters.thinkingBudget || what.onDraw)
    request.onDraw = [self = shared_from_this(), choice](auto...) {
      return self->givenToken(choice);
    };
  return request;
}

std::optional<int32_t> Generation::givenToken(size_t choice) const {
  std::optional<int32_t> given = states[choice]->parser.next();
  return given || !what.onDraw ? given : what.onDraw(choice);
}

std::vector<int32_t> Generation::modelEnds() const {
  return what.parameters.ignoreEos ? std::vector<int32_t>() : what.ends;
}

std::vector<int32_t> Generation::ends() const {
  std::vector<int32_t> ids = modelEnds();
  const std::vector<int32_t> &more = what.parameters.stopTokens;
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

void Generation::echoToken(Choice &state, TokenRecord record) const {
  const std::string_view bytes = bytesOf(tokenizer, record.id);
  record.offset = state.characters.place(bytes);
  state.characters.push(bytes);
  state.echoed.push_back(std::move(record));
}

void Generation::echo(Choice &state, std::span<const int32_t> prompt) const {
  std::string bytes;
  for (int32_t id : prompt)
    bytes += bytesOf(tokenizer, id);
  state.echo = toValidUtf8(bytes);
  // The scheduler scores all prompt tokens but the first as events.
  for (int32_t id : prompt.first(what.parameters.logprobs ? 1 : prompt.size()))
    echoToken(state, {.id = id});
}

std::optional<Request> Generation::next() {
  {
    const std::lock_guard lock(mutex);
    if (failure)
      return std::nullopt;
  }
  if (started == states.size())
    return std::nullopt;
  const size_t first = started;
  started += choicesOfRequest();
  for (size_t choice = first; choice < started; ++choice)
    open(choice);
  return requestOf(first);
}

void Generation::open(size_t choice) {
  const AnswerParameters &parameters = what.parameters;
  const std::vector<int32_t> &prompt = what.prompts[promptOf(choice)];
  states[choice] = std::make_unique<Choice>(
      tokenizer, what.format, prompt,
      AnswerOptions{.stops = parameters.stop,
                    .includeStop = parameters.includeStop,
                    .stopTokens = parameters.stopTokens,
                    .ends = modelEnds(),
                    .skipSpecial = parameters.skipSpecial,
                    .splitReasoning = parameters.splitReasoning,
                    .mayReason = what.mayReason,
                    .reasoningBudget = parameters.thinkingBudget,
                    .budgetMessage = what.budgetMessage,
                    .calls = what.calls});
  if (parameters.echo)
    echo(*states[choice], prompt);
}

void Generation::start(std::shared_ptr<const Grammar> answerGrammar) {
  grammar = std::move(answerGrammar);
  const RequestId id = scheduler.submit(
      *next(), [self = shared_from_this()] { return self->next(); });
  {
    const std::lock_guard lock(mutex);
    phase = Phase::Started;
    series = id;
    // `cancel` knew no series.
    if (stopping.stop_requested())
      scheduler.cancel(series);
  }
  wake();
}

void Generation::refuse(ApiError error) {
  {
    const std::lock_guard lock(mutex);
    phase = Phase::Refused;
    failure = std::move(error);
  }
  wake();
}

void Generation::cancel() {
  const std::lock_guard lock(mutex);
  std::stop_source(stopping).request_stop();
  if (phase == Phase::Started)
    scheduler.cancel(series);
}

bool Generation::hasStarted() const {
  const std::lock_guard lock(mutex);
  return phase != Phase::Before;
}

bool Generation::isRefused() const {
  const std::lock_guard lock(mutex);
  return phase == Phase::Refused;
}

void Generation::push(Delta delta) {
  hasContent |= !delta.progress;
  deltaBytes += delta.size();
  deltas.push_back(std::move(delta));
}

void Generation::give(Delta delta) {
  {
    const std::lock_guard lock(mutex);
    push(std::move(delta));
  }
  wake();
}

void Generation::onProgress(size_t choice, const Progress &progress) {
  {
    const std::lock_guard lock(mutex);
    // Clients show no progress beside an answer.
    if (hasContent)
      return;
    push({.choice = choice, .progress = progress, .seconds = elapsed()});
  }
  wake();
}

bool Generation::isTooLarge() const {
  return !what.parameters.stream && takenBytes + deltaBytes > kMostAnswerBytes;
}

bool Generation::isHeld() {
  const std::lock_guard lock(mutex);
  held = deltaBytes > kHeldBytes;
  return held;
}

void Generation::noteTimes(Choice &state) {
  const double now = elapsed();
  if (state.times.firstToken > 0) {
    // The tokens of a beam search come together.
    if (!what.parameters.beams.isSearch())
      metrics.interToken.record(now - state.lastTokenTime);
  } else {
    state.times.firstToken = now;
    metrics.firstToken.record(now);
    const std::lock_guard lock(mutex);
    if (firstToken == 0)
      firstToken = now;
  }
  state.lastTokenTime = now;
}

void Generation::add(Delta &delta, const AnswerEvent &event) {
  Choice &state = *states[delta.choice];
  // The prompt comes before all of the answer.
  state.characters.finish();
  if (!state.echo.empty() || !state.echoed.empty())
    state.items.add({AnswerEventKind::Text, std::exchange(state.echo, {})},
                    std::exchange(state.echoed, {}), delta);
  std::vector<TokenRecord> records;
  auto record = state.tokens.begin();
  for (const AnswerToken &token : event.tokens) {
    record->offset = state.characters.count() + token.begin;
    records.push_back(std::move(*record++));
  }
  state.tokens.erase(state.tokens.begin(), record);
  state.items.add(event, std::move(records), delta);
}

TokenRecord Generation::recordOf(const TokenEvent &event) const {
  TokenRecord record{.id = event.id};
  if (what.parameters.logprobs) {
    record.logprob = event.logprob;
    record.top.assign(event.top.begin(), event.top.end());
  }
  return record;
}

bool Generation::onToken(size_t choice, const TokenEvent &event) {
  Choice &state = *states[choice];
  if (event.isPrompt) {
    echoToken(state, recordOf(event));
    return true;
  }
  noteTimes(state);
  state.lastToken = event.id;
  state.tokens.push_back(recordOf(event));
  AnswerEvents events = state.parser.push(event.id);
  if (events.empty() && !state.echo.empty())
    events.push_back({AnswerEventKind::Text, "", state.parser.takeTokens()});
  for (const AnswerEvent &each : events) {
    if (each.kind == AnswerEventKind::StopString)
      continue;
    Delta delta{.choice = choice};
    add(delta, each);
    give(std::move(delta));
  }
  const std::lock_guard lock(mutex);
  return !state.parser.stop() && !isTooLarge();
}

std::optional<ApiError> Generation::failureOf(size_t choice,
                                              const Ending &ending) const {
  const std::shared_ptr<const AnswerConstraint> &constraint =
      states[choice]->constraint;
  if (ending.reason == EndReason::Failed && constraint &&
      constraint->hasFailed())
    return ApiError(
        400, what.grammarParameter() + " cannot be kept: " + ending.error,
        what.grammarParameter());
  if (ending.reason == EndReason::Failed)
    return asApiError(
        Error(what.prompts.size() > 1
                  ? what.nameOf(promptOf(choice)) + ": " + ending.error
                  : ending.error,
              ending.kind));
  if (ending.reason == EndReason::Cancelled)
    return ApiError(503, "the server cancelled the request");
  if (isTooLarge())
    return ApiError(400, "the answer has more than " +
                             std::to_string(kMostAnswerBytes >> 20) +
                             " MiB; stream it, or ask for fewer choices, "
                             "tokens or logprobs");
  return std::nullopt;
}

void Generation::onAnswers(size_t first, std::span<const BeamTokens> answers) {
  for (size_t i = 0; i < answers.size(); ++i) {
    const BeamTokens &answer = answers[i];
    const std::vector<int32_t> &prompt = what.prompts[promptOf(first)];
    for (size_t at = 0; at < answer.ids.size(); ++at)
      onToken(first + i,
              {.id = answer.ids[at],
               .position = std::ssize(prompt) + static_cast<int64_t>(at),
               .isPrompt = false,
               .logprob = answer.logprobs[at],
               .top = {}});
    states[first + i]->score = answer.score;
  }
}

Delta Generation::endOf(size_t choice, EndReason reason) {
  Choice &state = *states[choice];
  Delta last{.choice = choice};
  for (const AnswerEvent &event : state.parser.finish())
    add(last, event);
  last.kept = std::move(state.kept);
  const std::optional<std::string> &stop = state.parser.stop();
  const std::vector<int32_t> stops = ends();
  // Each answer of a beam search has an end of its own.
  if (state.score)
    reason = std::ranges::count(stops, state.lastToken) ? EndReason::Stop
                                                        : EndReason::Length;
  last.score = state.score;
  if (!stop && reason == EndReason::Length)
    last.finish = Finish::Length;
  else if (state.parser.hasCalls())
    last.finish = Finish::Calls;
  else
    last.finish = stop ? Finish::StopString : Finish::Stop;
  last.stopString = stop;
  if (!stop && reason == EndReason::Stop &&
      std::ranges::count(what.parameters.stopTokens, state.lastToken))
    last.stopToken = state.lastToken;
  return last;
}

void Generation::onEnd(size_t first, const Ending &ending) {
  try {
    tellEnd(first, ending);
  } catch (const std::bad_alloc &) {
    const std::lock_guard lock(mutex);
    lacksMemory = true;
  }
  for (size_t i = 0; i < choicesOfRequest(); ++i)
    states[first + i].reset();
  wake();
}

void Generation::tellEnd(size_t first, const Ending &ending) {
  std::vector<Delta> last;
  int64_t reasoning = 0;
  for (size_t i = 0; i < choicesOfRequest(); ++i) {
    last.push_back(endOf(first + i, ending.reason));
    reasoning += states[first + i]->parser.reasoningTokens();
  }
  Choice &state = *states[first];
  state.times.end = elapsed();
  metrics.countEnd(ending, state.times);
  const std::lock_guard lock(mutex);
  if (first % static_cast<size_t>(what.parameters.choices) == 0) {
    tokens.prompt += ending.promptTokens;
    tokens.cached += ending.cachedTokens;
  }
  tokens.drawn += ending.drawnTokens;
  tokens.drafted += ending.draftTokens;
  tokens.accepted += ending.acceptedTokens;
  tokens.reasoning += reasoning;
  end = state.times.end;
  ended += last.size();
  // The first failure is told.
  if (!failure)
    failure = failureOf(first, ending);
  if (!failure)
    for (Delta &delta : last)
      push(std::move(delta));
}

std::vector<Delta> Generation::take() {
  std::vector<Delta> taken;
  bool wasHeld = false;
  {
    const std::lock_guard lock(mutex);
    takenBytes += std::exchange(deltaBytes, 0);
    taken.swap(deltas);
    wasHeld = std::exchange(held, false);
  }
  if (wasHeld)
    scheduler.wake();
  return taken;
}

bool Generation::isDone() const {
  const std::lock_guard lock(mutex);
  return ended == states.size() || failure.has_value() || lacksMemory;
}

std::optional<ApiError> Generation::error() const {
  const std::lock_guard lock(mutex);
  if (lacksMemory && !failure)
    return ApiError(503, "out of memory");
  return failure;
}

Usage Generation::usage() const {
  const std::lock_guard lock(mutex);
  return tokens;
}

double Generation::firstTokenSeconds() const {
  const std::lock_guard lock(mutex);
  return firstToken;
}

double Generation::seconds() const {
  const std::lock_guard lock(mutex);
  return end;
}
