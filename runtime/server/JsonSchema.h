//===- JsonSchema.h - Parts of JSON schemas ---------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_JSONSCHEMA_H
#define QWEN_RUNTIME_SERVER_JSONSCHEMA_H

#include <nlohmann/json.hpp>

namespace qwen::server {

/// A schema of the values of `schema`, and of null.
inline nlohmann::ordered_json orNull(nlohmann::ordered_json schema) {
  if (schema.contains("enum"))
    schema["enum"].push_back(nullptr);
  // An empty schema is one of any value.
  if (schema.empty() || schema.contains("enum"))
    return schema;
  return {
      {"anyOf", nlohmann::ordered_json::array({schema, {{"type", "null"}}})}};
}

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_JSONSCHEMA_H
