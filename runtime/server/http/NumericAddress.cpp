//===- NumericAddress.cpp - An address without a look-up ------------------===//

#include "server/http/NumericAddress.h"

#include <boost/asio/ip/address.hpp>

#include <charconv>

using namespace qwen::server;

std::optional<NumericAddress>
qwen::server::parseNumericAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return std::nullopt;
  std::string host(text.substr(0, colon));
  if (host == "localhost")
    host = "127.0.0.1";
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const char *const end = text.data() + text.size();
  const auto [last, wrong] =
      std::from_chars(text.data() + colon + 1, end, port);
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  if (error || wrong != std::errc() || last != end)
    return std::nullopt;
  return NumericAddress{.host = host,
                        .isV6 = address.is_v6(),
                        .port = port,
                        .isLoopback = address.is_loopback()};
}
