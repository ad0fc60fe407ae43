//===- ServerOptions.h - The options of the server --------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_SERVEROPTIONS_H
#define QWEN_RUNTIME_SERVER_SERVEROPTIONS_H

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace qwen::server {

/// ServerOptions.def describes the fields.
struct ServerOptions {
#define QWEN_SERVER_OPTION(Type, Field, Name, Default, ...)                    \
  Type Field = Default;
#include "server/ServerOptions.def"
};

inline std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_SERVEROPTIONS_H
