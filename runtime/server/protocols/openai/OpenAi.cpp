//===- OpenAi.cpp - What OpenAI's protocols share -------------------------===//

#include "server/protocols/openai/OpenAi.h"

#include "server/Routes.h"
#include "text/Unicode.h"

#include <cmath>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

static const char *typeOf(unsigned status) {
  switch (status) {
  case 401:
  case 403:
    return "authentication_error";
  case 404:
    return "not_found_error";
  case 429:
    return "rate_limit_error";
  case 503:
    return "unavailable_error";
  default:
    return status < 500 ? "invalid_request_error" : "server_error";
  }
}

/// Null for none.
static const char *wordOf(ErrorCode code) {
  switch (code) {
  case ErrorCode::None:
    return nullptr;
  case ErrorCode::InvalidKey:
    return "invalid_api_key";
  case ErrorCode::UnknownParameter:
    return "unknown_parameter";
  case ErrorCode::UnknownModel:
    return "model_not_found";
  case ErrorCode::UnsupportedModel:
    return "unsupported_model";
  case ErrorCode::LongContext:
    return "context_length_exceeded";
  case ErrorCode::QueueFull:
    return "queue_full";
  }
  return nullptr;
}

static std::string bodyOf(const ApiError &error) {
  const std::string &parameter = error.parameter();
  const char *const code = wordOf(error.code());
  ordered_json object = {
      {"message", error.what()},
      {"type", typeOf(error.status())},
      {"param", parameter.empty() ? ordered_json() : ordered_json(parameter)},
      {"code", code ? ordered_json(code) : ordered_json()}};
  // Members of llama-server's errors.
  if (error.lengths)
    object.update({{"n_prompt_tokens", error.lengths->prompt},
                   {"n_ctx", error.lengths->context}});
  return dump({{"error", object}});
}

static Reply errorOf(const ApiError &error) {
  return errorReply(error, bodyOf(error));
}

static std::string eventOf(std::string_view /*type*/, std::string_view data) {
  return "data: " + std::string(data) + "\n\n";
}

static std::string errorEventOf(const ApiError &error) {
  return eventOf("", bodyOf(error)) + eventOf("", "[DONE]");
}

const Framing openai::kFraming = {.error = errorOf,
                                  .errorEvent = errorEventOf,
                                  .event = eventOf,
                                  .keepAlive = ": keep-alive\n\n",
                                  .errorSchema = "Error"};

ordered_json openai::promptUsage(const Generation &generation) {
  const int64_t tokens = generation.usage().prompt;
  return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
}

std::string openai::tokenText(const Tokenizer &tokenizer, int32_t id,
                              bool asId) {
  return asId ? "token_id:" + std::to_string(id)
              : toValidUtf8(bytesOf(tokenizer, id));
}

double openai::finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

ordered_json openai::tokenLogprobs(const std::vector<TokenRecord> &tokens,
                                   const Tokenizer &tokenizer, bool asIds) {
  const auto entry = [&](int32_t token, float logprob) {
    ordered_json bytes = ordered_json::array();
    for (char byte : bytesOf(tokenizer, token))
      bytes.push_back(static_cast<uint8_t>(byte));
    return ordered_json{{"token", tokenText(tokenizer, token, asIds)},
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
  return content;
}

/// No paths: schemas that several protocols refer to.
const Protocol protocols::openAi = {{},
                                    R"json({
"Error": {
  "type": "object", "required": ["error"],
  "properties": {"error": {
    "type": "object", "required": ["message", "type", "param", "code"],
    "properties": {
      "message": {"type": "string"}, "type": {"type": "string"},
      "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]},
      "n_prompt_tokens": {"type": "integer"}, "n_ctx": {"type": "integer"}}}}},
"Usage": {
  "type": "object", "required": ["prompt_tokens", "total_tokens"],
  "properties": {
    "prompt_tokens": {"type": "integer", "minimum": 0},
    "completion_tokens": {"type": "integer", "minimum": 0},
    "total_tokens": {"type": "integer", "minimum": 0},
    "prompt_tokens_details": {"type": "object", "properties": {
      "cached_tokens": {"type": "integer", "minimum": 0}}},
    "completion_tokens_details": {"type": "object", "properties": {
      "reasoning_tokens": {"type": "integer", "minimum": 0}}}}},
"Timings": {
  "type": "object",
  "required": ["cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms",
               "prompt_per_second", "predicted_n", "predicted_ms",
               "predicted_per_token_ms", "predicted_per_second"],
  "additionalProperties": {"type": "number"}},
"Answer": {
  "type": "object",
  "required": ["id", "object", "created", "model", "system_fingerprint",
               "x_seed", "choices", "usage", "timings"],
  "properties": {
    "id": {"type": "string"}, "created": {"type": "integer"},
    "model": {"type": "string"}, "system_fingerprint": {"type": "string"},
    "x_seed": {"type": "integer", "minimum": 0},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "timings": {"$ref": "#/components/schemas/Timings"}}},
"Choice": {
  "type": "object", "required": ["index", "logprobs", "finish_reason"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "finish_reason": {"enum": ["stop", "length", "tool_calls", "function_call"]},
    "stop_reason": {"type": ["string", "integer", "null"]},
    "x_score": {"type": "number"},
    "prompt_token_ids": {"$ref": "#/components/schemas/Ids"},
    "token_ids": {"$ref": "#/components/schemas/Ids"}}},
"Ids": {"type": "array", "items": {"type": "integer", "minimum": 0}},
"TokenLogprob": {
  "type": "object", "required": ["token", "logprob", "bytes"],
  "properties": {
    "token": {"type": "string"}, "logprob": {"type": "number"},
    "bytes": {"type": "array",
              "items": {"type": "integer", "minimum": 0, "maximum": 255}},
    "top_logprobs": {"type": "array",
                     "items": {"$ref": "#/components/schemas/TokenLogprob"}}}}
})json",
                                    &openai::kFraming};
