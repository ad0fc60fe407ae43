//===- NumericAddress.h - An address without a look-up ----------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_NUMERICADDRESS_H
#define QWEN_RUNTIME_SERVER_HTTP_NUMERICADDRESS_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qwen::server {

struct NumericAddress {
  /// Without brackets.
  std::string host;
  bool isV6;
  uint16_t port;
  /// Whether only this machine reaches it.
  bool isLoopback;
};

/// HOST:PORT, where HOST is numeric, in brackets or not, or localhost. Nothing
/// for another text.
std::optional<NumericAddress> parseNumericAddress(std::string_view text);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_NUMERICADDRESS_H
