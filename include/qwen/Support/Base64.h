//===- Base64.h - Bytes as text ---------------------------------*- C++ -*-===//

#ifndef QWEN_SUPPORT_BASE64_H
#define QWEN_SUPPORT_BASE64_H

#include <optional>
#include <string>
#include <string_view>

namespace qwen {

/// Bytes in base64 (RFC 4648, 4), with its padding.
std::string toBase64(std::string_view bytes);

/// The bytes of a text in base64; nothing if it is none.
std::optional<std::string> fromBase64(std::string_view text);

} // namespace qwen

#endif // QWEN_SUPPORT_BASE64_H
