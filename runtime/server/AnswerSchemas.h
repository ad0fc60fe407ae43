//===- AnswerSchemas.h - JSON schemas of answers ----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_ANSWERSCHEMAS_H
#define QWEN_RUNTIME_SERVER_ANSWERSCHEMAS_H

#include <nlohmann/json.hpp>

#include <string_view>

namespace qwen::server {

/// What a path answers with.
struct AnswerSchema {
  std::string_view path;
  /// One of answerSchemas; null for a text.
  const char *name;
  const char *mediaType = "application/json";
  /// Whether the answer may be a stream of events.
  bool isStreamed = false;
};

/// The answer of a path of routeTable.
const AnswerSchema &answerSchemaOf(std::string_view path);

/// The schemas by name, which refer to one another as components of
/// /openapi.json.
nlohmann::ordered_json answerSchemas();

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_ANSWERSCHEMAS_H
