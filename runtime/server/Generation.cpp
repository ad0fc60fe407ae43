//===- Generation.cpp - The answers to one HTTP request -------------------===//

#include "server/Generation.h"

#include "engine/SteadyClock.h"

#include <algorithm>
#include <utility>

using namespace qwen;
using namespace qwen::server;

/// Maximum number of bytes that wait for a client that does not read.
static constexpr size_t kMostDeltaBytes = size_t{1} << 20;

Generation::Generation(GenerationTask task, const Tokenizer &textTokenizer,
                       Scheduler &requestScheduler, Metrics &serverMetrics,
                       WakeFn wakeConnection)
    : what(std::move(task)), tokenizer(textTokenizer),
      scheduler(requestScheduler), metrics(serverMetrics),
      wake(std::move(wakeConnection)), startTime(steadyNanoseconds()) {
  const Parameters &parameters = what.parameters;
  const size_t count =
      what.prompts.size() * static_cast<size_t>(parameters.choices);
  for (size_t i = 0; i < count; ++i)
    states.push_back(
        {.text = AnswerText(parameters.stop, parameters.includeStop),
         .thinking = Thinking(what.think, tokenizer, what.prompts[promptOf(i)],
                              parameters.thinkingBudget)});
  deltas.reserve(count);
}

double Generation::elapsed() const {
  return static_cast<double>(steadyNanoseconds() - startTime) * 1e-9;
}

Request Generation::requestOf(size_t choice) {
  const Parameters &parameters = what.parameters;
  Request request;
  request.prompt = what.prompts[promptOf(choice)];
  request.sampling = parameters.sampling;
  request.sampling.seed = *parameters.seed;
  request.answer = choice % static_cast<size_t>(parameters.choices);
  request.maxTokens = parameters.maxTokens.value_or(request.maxTokens);
  if (!parameters.ignoreEos)
    request.stopTokens = what.ends;
  request.stopTokens.insert(request.stopTokens.end(),
                            parameters.stopTokens.begin(),
                            parameters.stopTokens.end());
  request.priority = parameters.priority;
  request.salt = what.salt;
  request.snapshotAt = what.snapshotAt;
  if (parameters.logprobs)
    request.logprobs = parameters.topLogprobs;
  request.scorePrompt = parameters.logprobs && parameters.echo;
  request.onStart = [self = shared_from_this(), choice] {
    self->states[choice].times.start = self->elapsed();
  };
  request.onToken = [self = shared_from_this(), choice](const auto &event) {
    return self->onToken(choice, event);
  };
  request.onEnd = [self = shared_from_this(), choice](const Ending &ending) {
    self->onEnd(choice, ending);
  };
  if (what.kind == AnswerKind::Embedding)
    request.onHidden = [self = shared_from_this(),
                        choice](std::span<const float> values) {
      self->states[choice].hidden.assign(values.begin(), values.end());
    };
  if (what.kind == AnswerKind::Rerank)
    request.onLogits = [self = shared_from_this(),
                        choice](std::span<const float> logits) {
      self->states[choice].score = self->what.reranker->score(logits);
    };
  if (parameters.returnProgress)
    request.onProgress = [self = shared_from_this(),
                          choice](const Progress &progress) {
      self->give(
          {.choice = choice, .progress = progress, .seconds = self->elapsed()});
    };
  if (parameters.thinkingBudget)
    request.onDraw = [self = shared_from_this(), choice] {
      return self->states[choice].thinking.next();
    };
  return request;
}

void Generation::start() {
  for (size_t choice = 0; choice < states.size(); ++choice) {
    if (what.parameters.echo) {
      const std::vector<int32_t> &prompt = what.prompts[promptOf(choice)];
      std::vector<TokenRecord> &records = states[choice].tokens;
      // The scheduler scores all prompt tokens but the first as events.
      const size_t count = what.parameters.logprobs ? 1 : prompt.size();
      for (size_t i = 0; i < count; ++i)
        records.push_back({.id = prompt[i]});
      const std::lock_guard lock(mutex);
      push({.choice = choice, .text = what.promptTexts[promptOf(choice)]});
    }
    try {
      const RequestId id = scheduler.submit(requestOf(choice));
      const std::lock_guard lock(mutex);
      requests.push_back(id);
    } catch (const Error &) {
      cancel();
      throw;
    }
  }
}

void Generation::cancel() {
  const std::lock_guard lock(mutex);
  for (RequestId id : requests)
    scheduler.cancel(id);
}

void Generation::push(Delta delta) {
  deltaBytes += sizeof(Delta) + delta.text.size() + delta.reasoning.size();
  for (const TokenRecord &token : delta.tokens)
    deltaBytes += sizeof(token) + token.top.size() * sizeof(TokenLogprob);
  deltas.push_back(std::move(delta));
}

void Generation::give(Delta delta) {
  {
    const std::lock_guard lock(mutex);
    push(std::move(delta));
  }
  wake();
}

void Generation::noteTimes(Choice &state) {
  const double now = elapsed();
  if (state.times.firstToken > 0) {
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

Delta Generation::deltaOf(size_t choice, std::string text) {
  Choice &state = states[choice];
  Delta delta{.choice = choice};
  if (what.parameters.splitReasoning)
    text = state.thinking.trim(std::move(text));
  const bool isReasoning =
      what.parameters.splitReasoning && state.thinking.isInside();
  (isReasoning ? delta.reasoning : delta.text) = std::move(text);
  if (!delta.text.empty() || !delta.reasoning.empty())
    delta.tokens = std::exchange(state.tokens, {});
  return delta;
}

bool Generation::onToken(size_t choice, const TokenEvent &event) {
  const Parameters &parameters = what.parameters;
  Choice &state = states[choice];
  TokenRecord record{.id = event.id};
  if (parameters.logprobs) {
    record.logprob = event.logprob;
    record.top.assign(event.top.begin(), event.top.end());
  }
  state.tokens.push_back(std::move(record));
  if (event.isPrompt)
    return true;
  noteTimes(state);
  state.lastToken = event.id;
  std::string text;
  // A token that ends an answer is no part of its text.
  const bool isEnd =
      (!parameters.ignoreEos && std::ranges::count(what.ends, event.id)) ||
      std::ranges::count(parameters.stopTokens, event.id);
  if (!isEnd && !(parameters.skipSpecial && tokenizer.isSpecial(event.id)))
    text = parameters.splitReasoning && state.thinking.isMark(event.id)
               ? state.text.finish()
               : state.text.push(tokenizer.tokenBytes(event.id));
  if (Delta delta = deltaOf(choice, std::move(text)); !delta.tokens.empty())
    give(std::move(delta));
  state.thinking.push(event.id);
  const std::lock_guard lock(mutex);
  return !state.text.stop() && deltaBytes <= kMostDeltaBytes;
}

/// The word of OpenAI's interface for a reason.
static const char *finishOf(EndReason reason) {
  return reason == EndReason::Length ? "length" : "stop";
}

void Generation::onEnd(size_t choice, const Ending &ending) {
  Choice &state = states[choice];
  Delta last = deltaOf(choice, state.text.finish());
  if (!state.tokens.empty())
    last.tokens = std::exchange(state.tokens, {});
  last.hidden = std::move(state.hidden);
  last.score = state.score;
  last.finish = state.text.stop() ? "stop" : finishOf(ending.reason);
  if (state.text.stop())
    last.stopReason = *state.text.stop();
  else if (ending.reason == EndReason::Stop &&
           std::ranges::count(what.parameters.stopTokens, state.lastToken))
    last.stopReason = state.lastToken;
  state.times.end = elapsed();
  metrics.countEnd(ending, state.times);
  {
    const std::lock_guard lock(mutex);
    if (choice % static_cast<size_t>(what.parameters.choices) == 0) {
      tokens.prompt += ending.promptTokens;
      tokens.cached += ending.cachedTokens;
    }
    tokens.drawn += ending.drawnTokens;
    tokens.reasoning += state.thinking.count();
    end = state.times.end;
    ++ended;
    if (failure) {
      // The first failure is told.
    } else if (ending.reason == EndReason::Failed) {
      failure = asApiError(Error(ending.error, ending.kind));
    } else if (ending.reason == EndReason::Cancelled) {
      failure = ApiError(503, "the server cancelled the request");
    } else if (ending.reason == EndReason::Callback && !state.text.stop()) {
      failure = ApiError(503, "the client does not read its answer");
    } else {
      push(std::move(last));
    }
  }
  wake();
}

std::vector<Delta> Generation::take() {
  const std::lock_guard lock(mutex);
  deltaBytes = 0;
  return std::exchange(deltas, {});
}

bool Generation::isDone() const {
  const std::lock_guard lock(mutex);
  return ended == states.size() || failure.has_value();
}

std::optional<ApiError> Generation::error() const {
  const std::lock_guard lock(mutex);
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
