//===- AnswerSchemas.cpp - JSON schemas of answers ------------------------===//

#include "server/AnswerSchemas.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <array>

using namespace qwen;
using namespace qwen::server;

static constexpr std::array kAnswers = std::to_array<AnswerSchema>({
    {"/v1/chat/completions", "ChatCompletion", "application/json", true},
    {"/v1/completions", "Completion", "application/json", true},
    {"/v1/embeddings", "Embeddings"},
    {"/v1/rerank", "Scores"},
    {"/v1/models", "Models"},
    {"/v1/models/{model}", "Model"},
    {"/tokenize", "Tokenized"},
    {"/detokenize", "Detokenized"},
    {"/tokenizer_info", "TokenizerInfo"},
    {"/health", "Status"},
    {"/", "Status"},
    {"/livez", "Status"},
    {"/version", "Version"},
    {"/metrics", nullptr, "text/plain"},
    {"/openapi.json", "Description"},
});

const AnswerSchema &server::answerSchemaOf(std::string_view path) {
  const auto *const found =
      std::ranges::find(kAnswers, path, &AnswerSchema::path);
  if (found == kAnswers.end())
    throw Error("no schema of the answer of " + std::string(path));
  return *found;
}

/// Objects may have more members than these.
static constexpr const char *kSchemas = R"json({
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
  "required": ["cache_n", "prompt_n", "prompt_ms", "prompt_per_second",
               "predicted_n", "predicted_ms", "predicted_per_second"],
  "additionalProperties": {"type": "number"}},
"Answer": {
  "type": "object",
  "required": ["id", "object", "created", "model", "x_seed", "choices", "usage",
               "timings"],
  "properties": {
    "id": {"type": "string"}, "created": {"type": "integer"},
    "model": {"type": "string"}, "x_seed": {"type": "integer", "minimum": 0},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "timings": {"$ref": "#/components/schemas/Timings"}}},
"Choice": {
  "type": "object", "required": ["index", "logprobs", "finish_reason"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "finish_reason": {"enum": ["stop", "length"]},
    "stop_reason": {"type": ["string", "integer", "null"]},
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
                     "items": {"$ref": "#/components/schemas/TokenLogprob"}}}},
"ChatCompletion": {
  "allOf": [{"$ref": "#/components/schemas/Answer"}],
  "properties": {
    "object": {"const": "chat.completion"},
    "choices": {"type": "array", "minItems": 1, "items": {
      "allOf": [{"$ref": "#/components/schemas/Choice"}],
      "required": ["message"],
      "properties": {
        "message": {
          "type": "object", "required": ["role", "content", "refusal"],
          "properties": {
            "role": {"const": "assistant"}, "content": {"type": "string"},
            "refusal": {"type": "null"}, "reasoning": {"type": "string"},
            "reasoning_content": {"type": "string"}}},
        "logprobs": {"anyOf": [{"type": "null"}, {
          "type": "object", "required": ["content", "refusal"],
          "properties": {
            "content": {"type": "array",
                        "items": {"$ref": "#/components/schemas/TokenLogprob"}},
            "refusal": {"type": "null"}}}]}}}}}},
"Completion": {
  "allOf": [{"$ref": "#/components/schemas/Answer"}],
  "properties": {
    "object": {"const": "text_completion"},
    "choices": {"type": "array", "minItems": 1, "items": {
      "allOf": [{"$ref": "#/components/schemas/Choice"}],
      "required": ["text"],
      "properties": {
        "text": {"type": "string"},
        "logprobs": {"anyOf": [{"type": "null"}, {
          "type": "object",
          "required": ["text_offset", "token_logprobs", "tokens", "top_logprobs"],
          "properties": {
            "text_offset": {"type": "array", "items": {"type": "integer"}},
            "token_logprobs": {"type": "array",
                               "items": {"type": ["number", "null"]}},
            "tokens": {"type": "array", "items": {"type": "string"}},
            "top_logprobs": {"type": "array", "items": {
              "type": ["object", "null"],
              "additionalProperties": {"type": "number"}}}}}]}}}}}},
"Embeddings": {
  "type": "object", "required": ["object", "data", "model", "usage"],
  "properties": {
    "object": {"const": "list"}, "model": {"type": "string"},
    "data": {"type": "array", "minItems": 1, "items": {
      "type": "object", "required": ["object", "index", "embedding"],
      "properties": {
        "object": {"const": "embedding"},
        "index": {"type": "integer", "minimum": 0},
        "embedding": {"anyOf": [
          {"type": "string"},
          {"type": "array", "minItems": 1, "items": {"type": "number"}}]}}}},
    "usage": {"$ref": "#/components/schemas/Usage"}}},
"Scores": {
  "type": "object", "required": ["id", "object", "model", "results", "usage"],
  "properties": {
    "id": {"type": "string"}, "object": {"const": "list"},
    "model": {"type": "string"},
    "results": {"type": "array", "minItems": 1, "items": {
      "type": "object", "required": ["index", "relevance_score"],
      "properties": {
        "index": {"type": "integer", "minimum": 0},
        "relevance_score": {"type": "number", "minimum": 0, "maximum": 1},
        "document": {"type": "object", "required": ["text"],
                     "properties": {"text": {"type": "string"}}}}}},
    "usage": {"$ref": "#/components/schemas/Usage"}}},
"Model": {
  "type": "object",
  "required": ["id", "object", "created", "owned_by", "max_model_len"],
  "properties": {
    "id": {"type": "string"}, "object": {"const": "model"},
    "created": {"type": "integer"}, "owned_by": {"type": "string"},
    "max_model_len": {"type": "integer", "minimum": 1}}},
"Models": {
  "type": "object", "required": ["object", "data"],
  "properties": {
    "object": {"const": "list"},
    "data": {"type": "array", "minItems": 1,
             "items": {"$ref": "#/components/schemas/Model"}}}},
"Tokenized": {
  "type": "object", "required": ["tokens", "count", "max_model_len"],
  "properties": {
    "tokens": {"type": "array", "items": {"anyOf": [
      {"type": "integer", "minimum": 0},
      {"type": "object", "required": ["id", "piece"],
       "properties": {
         "id": {"type": "integer", "minimum": 0},
         "piece": {"anyOf": [
           {"type": "string"},
           {"type": "array", "items": {"type": "integer", "minimum": 0,
                                       "maximum": 255}}]}}}]}},
    "count": {"type": "integer", "minimum": 0},
    "max_model_len": {"type": "integer", "minimum": 1}}},
"Detokenized": {
  "type": "object", "required": ["prompt", "content"],
  "properties": {"prompt": {"type": "string"}, "content": {"type": "string"}}},
"TokenizerInfo": {
  "type": "object",
  "required": ["tokenizer_class", "bos_token", "eos_token", "pad_token",
               "vocab_size", "model_max_length", "chat_template"],
  "properties": {
    "tokenizer_class": {"type": "string"},
    "bos_token": {"type": ["string", "null"]},
    "eos_token": {"type": ["string", "null"]},
    "pad_token": {"type": ["string", "null"]},
    "vocab_size": {"type": "integer", "minimum": 1},
    "model_max_length": {"type": "integer", "minimum": 1},
    "chat_template": {"type": "string"}}},
"Status": {
  "type": "object", "required": ["status"],
  "properties": {"status": {"const": "ok"}}},
"Version": {
  "type": "object", "required": ["version"],
  "properties": {"version": {"type": "string"}}},
"Description": {
  "type": "object", "required": ["openapi", "info", "paths", "components"]}
})json";

nlohmann::ordered_json server::answerSchemas() {
  return nlohmann::ordered_json::parse(kSchemas);
}
