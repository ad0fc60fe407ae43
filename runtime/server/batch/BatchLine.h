//===- BatchLine.h - Lines of requests and of answers -----------*- C++ -*-===//
//
// The JSON lines of OpenAI's batches, and short lines for people: an id and the
// parameters of a request.
// https://developers.openai.com/api/docs/guides/batch
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_BATCH_BATCHLINE_H
#define QWEN_RUNTIME_SERVER_BATCH_BATCHLINE_H

#include "server/http/Message.h"

namespace qwen::server {

/// Maximum number of bytes of an id.
inline constexpr size_t kMostIdBytes = 512;

/// A line of the input.
struct BatchLine {
  /// Its number in the file, from 1.
  uint64_t number = 0;
  /// A string or an integer; null if the line is too broken to have one.
  nlohmann::ordered_json id = nullptr;
  /// Its seed is the number of the line.
  HttpRequest request = {};
  /// Why the line is no request; empty if it is one.
  std::string error = {};
};

/// Reads {"custom_id", "method": "POST", "url", "body": {...}}, or {"id", ...}
/// whose other members are the body of /v1/chat/completions ("messages"),
/// /v1/completions ("prompt") or /v1/embeddings ("input"). `service` checks the
/// body.
BatchLine parseBatchLine(std::string_view text, uint64_t number);

/// The line of an answer, with its end: {"id": "batch_req_NUMBER", "custom_id",
/// "response": {"status_code", "request_id", "body"}, "error": null}.
std::string answerLine(const BatchLine &line, const Reply &reply);
/// The line of an answer to a line that is no request: "response" is null, and
/// "error" has "code" and "message".
std::string failureLine(const BatchLine &line);

/// Whether a reply has a status of 4xx or 5xx.
inline bool isError(const Reply &reply) { return reply.status >= 400; }

/// What the line of an answer tells of the line that it answers.
struct AnsweredLine {
  uint64_t number = 0;
  nlohmann::ordered_json id = nullptr;
  bool isError = false;
};
/// Throws Error if `text` is not the line of an answer.
AnsweredLine parseAnswerLine(std::string_view text);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_BATCH_BATCHLINE_H
