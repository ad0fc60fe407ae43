//===- Sealed.h - Reasoning that a client keeps -----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_SEALED_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_SEALED_H

#include <optional>
#include <string>
#include <string_view>

namespace qwen::server::responses {

/// A text as "encrypted_content" of an item: base64 of a mark, a checksum and
/// the text. It is not secret.
std::string seal(std::string_view text);

/// The text of `sealed`; nothing if another server made it, or if it is
/// damaged.
std::optional<std::string> unseal(std::string_view sealed);

} // namespace qwen::server::responses

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_SEALED_H
