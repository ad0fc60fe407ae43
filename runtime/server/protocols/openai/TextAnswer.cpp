//===- TextAnswer.cpp - Answers with drawn tokens -------------------------===//

#include "server/protocols/openai/TextAnswer.h"

#include "server/protocols/openai/OpenAi.h"

#include <algorithm>
#include <chrono>
#include <utility>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

TextAnswer::TextAnswer(const Service &service, const Names &answerNames)
    : tokenizer(service.tokenizer), names(answerNames), model(service.model()),
      fingerprint(service.fingerprint), id(randomId(names.id)),
      created(std::chrono::duration_cast<std::chrono::seconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count()) {}

void TextAnswer::begin(std::shared_ptr<Generation> from,
                       const Framing &protocolFraming) {
  Answer::begin(std::move(from), protocolFraming);
  states.resize(choices.size());
  head = headOf(base(true), "choices");
}

ordered_json TextAnswer::base(bool isChunk) const {
  return {{"id", id},
          {"object", isChunk ? names.chunk : names.object},
          {"created", created},
          {"model", model},
          {"system_fingerprint", fingerprint},
          {"x_seed", *task().parameters.seed}};
}

ordered_json TextAnswer::usage(const Usage &tokens) const {
  return {
      {"prompt_tokens", tokens.prompt},
      {"completion_tokens", tokens.drawn},
      {"total_tokens", tokens.prompt + tokens.drawn},
      {"prompt_tokens_details", {{"cached_tokens", tokens.cached}}},
      {"completion_tokens_details", {{"reasoning_tokens", tokens.reasoning}}}};
}

ordered_json server::timingsOf(const Generation &generation) {
  const Usage tokens = generation.usage();
  const double first = generation.firstTokenSeconds();
  const double rest = generation.seconds() - first;
  const auto ratio = [](double of, double by) {
    return of > 0 && by > 0 ? of / by : 0;
  };
  const auto ran = static_cast<double>(tokens.prompt - tokens.cached);
  // The time to the first token is the time of the prompt.
  const auto timed = static_cast<double>(tokens.drawn - 1);
  ordered_json timings = {{"cache_n", tokens.cached},
                          {"prompt_n", tokens.prompt - tokens.cached},
                          {"prompt_ms", first * 1e3},
                          {"prompt_per_token_ms", ratio(first * 1e3, ran)},
                          {"prompt_per_second", ratio(ran, first)},
                          {"predicted_n", tokens.drawn},
                          {"predicted_ms", rest * 1e3},
                          {"predicted_per_token_ms", ratio(rest * 1e3, timed)},
                          {"predicted_per_second", ratio(timed, rest)}};
  // As llama.cpp does, only where there are some.
  if (tokens.drafted) {
    timings["draft_n"] = tokens.drafted;
    timings["draft_n_accepted"] = tokens.accepted;
  }
  return timings;
}

std::string TextAnswer::tokenText(int32_t token) const {
  return openai::tokenText(tokenizer, token, task().parameters.tokensAsIds);
}

ordered_json TextAnswer::choiceOf(const openai::Folded &part, const Delta &end,
                                  bool isChunk, State &state) const {
  const AnswerParameters &parameters = task().parameters;
  ordered_json choice = {{"index", end.choice}};
  addText(choice, part, isChunk);
  // A chunk may have no tokens.
  choice["logprobs"] = !parameters.logprobs || (isChunk && part.tokens.empty())
                           ? ordered_json()
                           : logprobs(part.tokens);
  choice["finish_reason"] = finishOf(end);
  if (end.finish != Finish::None)
    choice["stop_reason"] = openai::stopReason(end);
  if (end.score)
    choice["x_score"] = *end.score;
  if (parameters.returnTokenIds) {
    const std::vector<int32_t> &prompt =
        task().prompts[generation->promptOf(end.choice)];
    if (!std::exchange(state.hasPrompt, true))
      choice["prompt_token_ids"] = prompt;
    // The tokens of a prompt that is echoed come first.
    size_t skip = 0;
    if (parameters.echo && state.tokens < prompt.size())
      skip = std::min(prompt.size() - state.tokens, part.tokens.size());
    ordered_json ids = ordered_json::array();
    for (size_t i = skip; i < part.tokens.size(); ++i)
      ids.push_back(part.tokens[i].id);
    choice["token_ids"] = ids;
  }
  state.tokens += part.tokens.size();
  return choice;
}

std::string TextAnswer::chunk(const ordered_json &choice,
                              ordered_json more) const {
  const AnswerParameters &parameters = task().parameters;
  if (parameters.continuousUsage) {
    Usage tokens;
    for (const std::vector<int32_t> &prompt : task().prompts)
      tokens.prompt += std::ssize(prompt);
    for (size_t i = 0; i < states.size(); ++i) {
      const size_t prompt =
          parameters.echo ? task().prompts[generation->promptOf(i)].size() : 0;
      tokens.drawn += static_cast<int64_t>(states[i].tokens -
                                           std::min(states[i].tokens, prompt));
    }
    more["usage"] = usage(tokens);
  } else if (parameters.includeUsage) {
    more["usage"] = nullptr;
  }
  std::string text = head;
  if (!choice.is_null())
    text += dump(choice);
  return event("", text + tailOf(more));
}

std::string TextAnswer::progressEvent(const Delta &delta) const {
  return chunk(nullptr, {{"prompt_progress",
                          {{"total", delta.progress->total},
                           {"cache", delta.progress->cached},
                           {"processed", delta.progress->done},
                           {"time_ms", delta.seconds * 1e3}}}});
}

std::string TextAnswer::write(Delta delta) {
  if (!isEvents())
    return Answer::write(std::move(delta));
  if (delta.progress)
    return progressEvent(delta);
  std::string text;
  State &state = states[delta.choice];
  if (!std::exchange(state.hasOpening, true))
    if (const ordered_json first = firstChoice(delta.choice); !first.is_null())
      text += chunk(first);
  openai::Folded part = state.fold.take(delta);
  // Tokens without text are told only to those who ask for tokens: in the last
  // chunk if they end the answer.
  const bool hasEnded = delta.finish != Finish::None;
  const bool tellsTokens =
      task().parameters.logprobs || task().parameters.returnTokenIds;
  if (part.hasText() || (tellsTokens && !part.tokens.empty() && !hasEnded)) {
    const ordered_json choice =
        choiceOf(part, {.choice = delta.choice}, true, state);
    text += chunk(choice);
    part = {};
  }
  if (!hasEnded) {
    state.tokens += part.tokens.size();
  } else {
    const ordered_json choice =
        choiceOf({.tokens = std::move(part.tokens)}, delta, true, state);
    text += chunk(choice);
  }
  return text;
}

ordered_json TextAnswer::verbose() const {
  const AnswerParameters &parameters = task().parameters;
  std::string prompt;
  for (const int32_t token : task().prompts.front())
    prompt += bytesOf(tokenizer, token);
  ordered_json settings = describeSampling(parameters.sampling);
  settings["seed"] = *parameters.seed;
  settings["n_predict"] = parameters.maxTokens.value_or(-1);
  settings["stop"] = parameters.stop;
  return {{"prompt", prompt},
          {"generation_settings", settings},
          {"tokens_evaluated", generation->usage().prompt},
          {"tokens_predicted", generation->usage().drawn}};
}

ordered_json TextAnswer::closing() const {
  ordered_json members = {{"usage", usage(generation->usage())},
                          {"timings", timingsOf(*generation)}};
  // llama-server's name.
  if (task().parameters.isVerbose)
    members["__verbose"] = verbose();
  return members;
}

std::string TextAnswer::finish() {
  if (!isEvents()) {
    select(choices);
    size_t index = 0;
    const auto element = [&](Delta &delta) {
      State state;
      const openai::Folded whole = state.fold.take(delta);
      ordered_json choice = choiceOf(whole, delta, false, state);
      choice["index"] = index++;
      return choice;
    };
    return listOf(base(false), "choices", element, closing());
  }
  std::string text;
  if (task().parameters.includeUsage || task().parameters.isVerbose) {
    ordered_json object = base(true);
    object["choices"] = ordered_json::array();
    object.update(closing());
    text = event("", dump(object));
  }
  return text + event("", "[DONE]");
}
