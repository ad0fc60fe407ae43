//===- AnswerWriter.cpp - Answers as OpenAI's objects ---------------------===//

#include "server/AnswerWriter.h"

#include "text/Unicode.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

std::string server::randomId(const std::string &prefix) {
  std::random_device device;
  char digits[25];
  snprintf(digits, sizeof(digits), "%08x%08x%08x", device(), device(),
           device());
  return prefix + digits;
}

std::string server::dump(const ordered_json &object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

/// An event with the JSON `text`.
static std::string event(const std::string &text) {
  return "data: " + text + "\n\n";
}

/// The text of `object` with another member, a list, which has only begun.
static std::string headOf(const ordered_json &object, const char *list) {
  std::string text = dump(object);
  text.pop_back();
  return text.append(",\"").append(list).append("\":[");
}

/// Ends a list of `head` with the members of `more`.
static std::string tailOf(const ordered_json &more) {
  return more.empty() ? "]}" : "]," + dump(more).substr(1);
}

AnswerWriter::AnswerWriter(const Generation &answers,
                           const Tokenizer &textTokenizer,
                           std::string modelName)
    : generation(answers), task(answers.task()), tokenizer(textTokenizer),
      model(std::move(modelName)), id(randomId(infoOf(task.kind).idPrefix)),
      created(std::chrono::duration_cast<std::chrono::seconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count()),
      head(headOf(base(true), "choices")), choices(answers.choices()) {}

//===----------------------------------------------------------------------===//
// Parts of objects
//===----------------------------------------------------------------------===//

ordered_json AnswerWriter::base(bool isChunk) const {
  const AnswerKindInfo &kind = infoOf(task.kind);
  return {{"id", id},
          {"object", isChunk ? kind.chunk : kind.object},
          {"created", created},
          {"model", model},
          {"x_seed", *task.parameters.seed}};
}

ordered_json AnswerWriter::usage(const Usage &tokens) const {
  return {
      {"prompt_tokens", tokens.prompt},
      {"completion_tokens", tokens.drawn},
      {"total_tokens", tokens.prompt + tokens.drawn},
      {"prompt_tokens_details", {{"cached_tokens", tokens.cached}}},
      {"completion_tokens_details", {{"reasoning_tokens", tokens.reasoning}}}};
}

ordered_json AnswerWriter::timings() const {
  const Usage tokens = generation.usage();
  const double first = generation.firstTokenSeconds();
  const double rest = generation.seconds() - first;
  const auto perSecond = [](int64_t count, double seconds) {
    return count > 1 && seconds > 0 ? static_cast<double>(count) / seconds : 0;
  };
  const int64_t ran = tokens.prompt - tokens.cached;
  return {{"cache_n", tokens.cached},
          {"prompt_n", ran},
          {"prompt_ms", first * 1e3},
          {"prompt_per_second", perSecond(ran, first)},
          {"predicted_n", tokens.drawn},
          {"predicted_ms", rest * 1e3},
          {"predicted_per_second", perSecond(tokens.drawn, rest)}};
}

/// The text of a token, or its number as vLLM writes it.
std::string AnswerWriter::tokenText(int32_t token) const {
  if (task.parameters.tokensAsIds)
    return "token_id:" + std::to_string(token);
  return toValidUtf8(bytesOf(tokenizer, token));
}

/// JSON has no infinity.
static double finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

ordered_json
AnswerWriter::completionLogprobs(const std::vector<TokenRecord> &tokens) const {
  ordered_json object = {{"text_offset", ordered_json::array()},
                         {"token_logprobs", ordered_json::array()},
                         {"tokens", ordered_json::array()},
                         {"top_logprobs", ordered_json::array()}};
  for (const TokenRecord &token : tokens) {
    const std::string text = tokenText(token.id);
    object["tokens"].push_back(text);
    object["text_offset"].push_back(token.offset);
    if (!token.logprob) {
      object["token_logprobs"].push_back(nullptr);
      object["top_logprobs"].push_back(nullptr);
      continue;
    }
    ordered_json top = ordered_json::object();
    // Of tokens with the same text, the most likely one is first.
    for (const TokenLogprob &each : token.top)
      if (const std::string key = tokenText(each.id); !top.contains(key))
        top[key] = finite(each.logprob);
    const double logprob = finite(*token.logprob);
    if (!top.contains(text) || top[text] < logprob)
      top[text] = logprob;
    object["token_logprobs"].push_back(logprob);
    object["top_logprobs"].push_back(top);
  }
  return object;
}

ordered_json
AnswerWriter::chatLogprobs(const std::vector<TokenRecord> &tokens) const {
  const auto entry = [&](int32_t token, float logprob) {
    ordered_json bytes = ordered_json::array();
    for (char byte : bytesOf(tokenizer, token))
      bytes.push_back(static_cast<uint8_t>(byte));
    return ordered_json{{"token", tokenText(token)},
                        {"logprob", finite(logprob)},
                        {"bytes", bytes}};
  };
  ordered_json content = ordered_json::array();
  for (const TokenRecord &token : tokens) {
    ordered_json object = entry(token.id, *token.logprob);
    object["top_logprobs"] = ordered_json::array();
    for (const TokenLogprob &each : token.top)
      object["top_logprobs"].push_back(entry(each.id, each.logprob));
    content.push_back(object);
  }
  return {{"content", content}, {"refusal", nullptr}};
}

ordered_json AnswerWriter::logprobs(const Delta &delta) const {
  if (!task.parameters.logprobs)
    return nullptr;
  return task.kind == AnswerKind::Chat ? chatLogprobs(delta.tokens)
                                       : completionLogprobs(delta.tokens);
}

/// The message of a whole answer, or what a chunk adds to it.
static ordered_json messageOf(const Delta &delta, bool isChunk) {
  ordered_json message = ordered_json::object();
  if (!isChunk)
    message["role"] = "assistant";
  if (!isChunk || !delta.text.empty())
    message["content"] = delta.text;
  // A member that is never left out in OpenAI's answers.
  if (!isChunk)
    message["refusal"] = nullptr;
  // The names of DeepSeek and llama.cpp, and of vLLM.
  if (!delta.reasoning.empty())
    message["reasoning_content"] = message["reasoning"] = delta.reasoning;
  return message;
}

ordered_json AnswerWriter::choiceOf(const Delta &delta, bool isChunk,
                                    Choice &state) const {
  ordered_json choice = {{"index", delta.choice}};
  if (task.kind == AnswerKind::Chat)
    choice[isChunk ? "delta" : "message"] = messageOf(delta, isChunk);
  else
    choice["text"] = delta.text;
  // The last chunk of a choice has no tokens.
  choice["logprobs"] =
      isChunk && delta.tokens.empty() ? ordered_json() : logprobs(delta);
  choice["finish_reason"] =
      delta.finish.empty() ? ordered_json() : ordered_json(delta.finish);
  if (!delta.finish.empty())
    choice["stop_reason"] = delta.stopReason;
  if (task.parameters.returnTokenIds) {
    const std::vector<int32_t> &prompt =
        task.prompts[generation.promptOf(delta.choice)];
    if (!std::exchange(state.hasPrompt, true))
      choice["prompt_token_ids"] = prompt;
    // The tokens of a prompt that is echoed come first.
    size_t skip = 0;
    if (task.parameters.echo && state.tokens < prompt.size())
      skip = std::min(prompt.size() - state.tokens, delta.tokens.size());
    ordered_json ids = ordered_json::array();
    for (size_t i = skip; i < delta.tokens.size(); ++i)
      ids.push_back(delta.tokens[i].id);
    choice["token_ids"] = ids;
  }
  state.tokens += delta.tokens.size();
  return choice;
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

std::string AnswerWriter::chunk(const ordered_json &choice,
                                ordered_json more) const {
  if (task.parameters.continuousUsage) {
    Usage tokens;
    for (const std::vector<int32_t> &prompt : task.prompts)
      tokens.prompt += std::ssize(prompt);
    for (size_t i = 0; i < choices.size(); ++i) {
      const size_t prompt = task.parameters.echo
                                ? task.prompts[generation.promptOf(i)].size()
                                : 0;
      tokens.drawn += static_cast<int64_t>(choices[i].tokens -
                                           std::min(choices[i].tokens, prompt));
    }
    more["usage"] = usage(tokens);
  } else if (task.parameters.includeUsage) {
    more["usage"] = nullptr;
  }
  std::string text = head;
  if (!choice.is_null())
    text += dump(choice);
  return event(text + tailOf(more));
}

std::string AnswerWriter::progressEvent(const Delta &delta) const {
  return chunk(nullptr, {{"prompt_progress",
                          {{"total", delta.progress->total},
                           {"cache", delta.progress->cached},
                           {"processed", delta.progress->done},
                           {"time_ms", delta.seconds * 1e3}}}});
}

std::string AnswerWriter::events(std::vector<Delta> deltas) {
  std::string text;
  for (Delta &delta : deltas) {
    Choice &state = choices[delta.choice];
    if (delta.progress) {
      text += progressEvent(delta);
      continue;
    }
    if (task.kind == AnswerKind::Chat && !state.hasRole) {
      state.hasRole = true;
      text += chunk({{"index", delta.choice},
                     {"delta", {{"role", "assistant"}, {"content", ""}}},
                     {"logprobs", nullptr},
                     {"finish_reason", nullptr}});
    }
    Delta last{.choice = delta.choice};
    std::swap(last.finish, delta.finish);
    std::swap(last.stopReason, delta.stopReason);
    if (!delta.text.empty() || !delta.reasoning.empty() ||
        !delta.tokens.empty()) {
      const ordered_json choice = choiceOf(delta, true, state);
      text += chunk(choice);
    }
    if (!last.finish.empty()) {
      const ordered_json choice = choiceOf(last, true, state);
      text += chunk(choice);
    }
  }
  return text;
}

std::string AnswerWriter::lastEvents() {
  std::string text;
  if (const std::optional<ApiError> error = generation.error()) {
    text = event(dump(error->object()));
  } else if (task.parameters.includeUsage) {
    ordered_json object = base(true);
    object["choices"] = ordered_json::array();
    object["usage"] = usage(generation.usage());
    object["timings"] = timings();
    text = event(dump(object));
  }
  return text + event("[DONE]");
}

//===----------------------------------------------------------------------===//
// Whole answers
//===----------------------------------------------------------------------===//

void AnswerWriter::add(std::vector<Delta> deltas) {
  for (Delta &delta : deltas) {
    Delta &all = choices[delta.choice].delta;
    all.choice = delta.choice;
    all.text += delta.text;
    all.reasoning += delta.reasoning;
    all.hidden = std::move(delta.hidden);
    all.score = delta.score;
    std::ranges::move(delta.tokens, std::back_inserter(all.tokens));
    if (!delta.finish.empty()) {
      all.finish = delta.finish;
      all.stopReason = delta.stopReason;
    }
  }
}

/// The little-endian bytes of floats.
static std::string base64(const std::vector<float> &values) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto bytes = std::as_bytes(std::span(values));
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(bytes.size() - i, 3);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits =
          bits << 8 | (j < count ? std::to_integer<uint32_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j)
      text += j <= count ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

ordered_json AnswerWriter::promptUsage() const {
  const int64_t tokens = generation.usage().prompt;
  return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
}

std::string
AnswerWriter::listOf(const ordered_json &object, const char *list,
                     const std::function<ordered_json(const Delta &)> &element,
                     const ordered_json &more) const {
  std::string text = headOf(object, list);
  for (size_t i = 0; i < choices.size(); ++i)
    text.append(i ? "," : "").append(dump(element(choices[i].delta)));
  return text + tailOf(more);
}

std::string AnswerWriter::embeddings() const {
  const Parameters &parameters = task.parameters;
  const auto element = [&](const Delta &delta) -> ordered_json {
    const auto dimensions = static_cast<size_t>(
        parameters.dimensions.value_or(std::ssize(delta.hidden)));
    const std::vector<float> vector = embeddingOf(delta.hidden, dimensions);
    return {{"object", "embedding"},
            {"index", delta.choice},
            {"embedding", parameters.base64 ? ordered_json(base64(vector))
                                            : ordered_json(vector)}};
  };
  return listOf({{"object", infoOf(task.kind).object}}, "data", element,
                {{"model", model}, {"usage", promptUsage()}});
}

ordered_json AnswerWriter::rerank() const {
  const Parameters &parameters = task.parameters;
  std::vector<const Delta *> best;
  best.reserve(choices.size());
  for (const Choice &choice : choices)
    best.push_back(&choice.delta);
  std::ranges::sort(best, [](const Delta *a, const Delta *b) {
    return a->score != b->score ? a->score > b->score : a->choice < b->choice;
  });
  best.resize(std::min(
      best.size(),
      static_cast<size_t>(parameters.topCount.value_or(std::ssize(best)))));
  ordered_json results = ordered_json::array();
  for (const Delta *delta : best) {
    ordered_json result = {{"index", delta->choice},
                           {"relevance_score", delta->score}};
    if (parameters.returnDocuments)
      result["document"] = {{"text", parameters.documents[delta->choice]}};
    results.push_back(result);
  }
  return {{"id", id},
          {"object", infoOf(task.kind).object},
          {"model", model},
          {"results", results},
          {"usage", promptUsage()}};
}

std::string AnswerWriter::whole() const {
  if (task.kind == AnswerKind::Embedding)
    return embeddings();
  if (task.kind == AnswerKind::Rerank)
    return dump(rerank());
  const auto element = [&](const Delta &delta) {
    Choice state;
    return choiceOf(delta, false, state);
  };
  return listOf(base(false), "choices", element,
                {{"usage", usage(generation.usage())}, {"timings", timings()}});
}
