//===- Access.cpp - Who may send requests ---------------------------------===//

#include "server/http/Access.h"

#include "server/http/Headers.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

using namespace qwen;
using namespace qwen::server;

/// Compares without a hint of the place of the first difference.
static bool equalsKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() != key.size();
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned>(given[i] ^ key[i % key.size()]);
  return difference == 0;
}

std::optional<size_t> server::findKey(std::string_view authorization,
                                      std::string_view key,
                                      const std::vector<std::string> &keys) {
  constexpr std::string_view kBearer = "Bearer ";
  if (equalsNoCase(authorization.substr(0, kBearer.size()), kBearer)) {
    authorization.remove_prefix(kBearer.size());
    authorization.remove_prefix(
        std::min(authorization.find_first_not_of(' '), authorization.size()));
    key = authorization;
  }
  // All are compared, so that the time says nothing of the others.
  std::optional<size_t> found;
  for (size_t i = keys.size(); i-- > 0;)
    if (equalsKey(key, keys[i]))
      found = i;
  return found;
}

static bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// A host without its port.
static std::string_view withoutPort(std::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  const bool hasPort = colon != std::string_view::npos &&
                       (bracket == std::string_view::npos || colon > bracket);
  return hasPort ? host.substr(0, colon) : host;
}

bool server::isLocalHost(std::string_view host, std::string_view listen) {
  // "localhost:80@evil.example" is a host of another name.
  const std::string_view port = host.substr(withoutPort(host).size());
  if (!port.empty() && !std::ranges::all_of(port.substr(1), isDigit))
    return false;
  const auto names = std::to_array<std::string_view>(
      {"localhost", "127.0.0.1", "[::1]", withoutPort(listen)});
  return std::ranges::any_of(names, [&](std::string_view name) {
    return equalsNoCase(withoutPort(host), name);
  });
}

static constexpr std::string_view kSchemeMark = "://";
/// What stands for all origins of this machine.
static constexpr std::string_view kThisMachine = "localhost";

/// Whether a server of this machine has the page of an Origin.
static bool isLocalOrigin(std::string_view origin) {
  const size_t mark = origin.find(kSchemeMark);
  if (mark == std::string_view::npos)
    return false;
  const std::string_view scheme = origin.substr(0, mark);
  return (scheme == "http" || scheme == "https") &&
         isLocalHost(origin.substr(mark + kSchemeMark.size()), kThisMachine);
}

bool server::isAllowedOrigin(std::string_view origin,
                             const std::vector<std::string> &allowed) {
  return std::ranges::any_of(allowed, [&](const std::string &each) {
    return each == "*" || each == origin ||
           (each == kThisMachine && isLocalOrigin(origin));
  });
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// Why no client can send this as a key; empty if one can.
static std::string faultOfKey(std::string_view key) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (key.starts_with(kByteOrderMark))
    return "it begins with a byte order mark";
  if (key.starts_with(' ') || key.ends_with(' '))
    return "it begins or ends with a space";
  if (std::ranges::any_of(key, [](char c) {
        return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
      }))
    return "it has a control character";
  return "";
}

void server::requireKey(const std::string &key, const std::string &place) {
  if (const std::string fault = faultOfKey(key); !fault.empty())
    throw Error(place + ": no client can send the key in a header: " + fault);
}

std::vector<std::string> server::keysOf(const std::string &text,
                                        const std::string &file) {
  std::vector<std::string> keys;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r'))
      line.pop_back();
    if (line.empty() || line.starts_with('#'))
      continue;
    requireKey(line, file + " line " + std::to_string(number));
    keys.push_back(line);
  }
  if (keys.empty())
    throw Error(file + " has no API key");
  return keys;
}

//===----------------------------------------------------------------------===//
// Origins
//===----------------------------------------------------------------------===//

static bool isLower(char c) { return c >= 'a' && c <= 'z'; }

/// What is wrong with ":PORT" of an origin; empty if nothing is.
static std::string faultOfPort(std::string_view port, std::string_view scheme) {
  uint16_t number = 0;
  const char *const end = port.data() + port.size();
  const auto [last, wrong] = std::from_chars(port.data() + 1, end, number);
  if (wrong != std::errc() || last != end || number == 0 || port[1] == '0')
    return "its port is not a number from 1 to 65535";
  const bool isDefault = (scheme == "http" && number == 80) ||
                         (scheme == "https" && number == 443);
  return isDefault ? "browsers leave out the port of the scheme" : "";
}

/// What is wrong with the host of a page of the web; empty if nothing is.
static std::string faultOfHost(std::string_view host) {
  constexpr std::string_view kMarks = "-._";
  const bool isAddress = host.starts_with('[') && host.ends_with(']');
  const bool isGood = !host.empty() && std::ranges::all_of(host, [&](char c) {
    return isLower(c) || isDigit(c) ||
           (isAddress ? c == ':' || c == '[' || c == ']'
                      : kMarks.find(c) != std::string_view::npos);
  });
  return isGood ? ""
                : "its host must have lower-case letters, digits, \"-\", "
                  "\"_\" and \".\" only (xn--... for other letters)";
}

/// Why no browser sends this as an Origin; empty if one may.
static std::string faultOfOrigin(std::string_view origin) {
  // A page without an origin of its own has "null".
  if (origin == "*" || origin == "null" || origin == kThisMachine)
    return "";
  const size_t mark = origin.find(kSchemeMark);
  if (mark == std::string_view::npos || mark == 0)
    return "it has no scheme";
  const std::string_view scheme = origin.substr(0, mark);
  const std::string_view rest = origin.substr(mark + kSchemeMark.size());
  if (!std::ranges::all_of(scheme, [](char c) {
        return isLower(c) || isDigit(c) || c == '+' || c == '-' || c == '.';
      }))
    return "its scheme must have lower-case letters, digits, \"+\", \"-\" and "
           "\".\" only";
  if (rest.find_first_of("/?#") != std::string_view::npos)
    return "it has a slash or more behind the host";
  const std::string_view host = withoutPort(rest);
  if (host.size() < rest.size())
    if (const std::string fault = faultOfPort(rest.substr(host.size()), scheme);
        !fault.empty())
      return fault;
  if (scheme == "http" || scheme == "https")
    return faultOfHost(host);
  // Extensions and programs with pages have schemes, and hosts, of their own.
  const bool isGood = !host.empty() && std::ranges::all_of(host, [](char c) {
    return c > ' ' && c < '\x7f' && c != '*' && c != '@';
  });
  return isGood ? "" : "its host is empty or has characters that hosts lack";
}

void server::requireOrigin(const std::string &origin) {
  if (const std::string fault = faultOfOrigin(origin); !fault.empty())
    throw Error("--cors-origins " + quote(origin) +
                " matches no page: " + fault +
                "; browsers send SCHEME://HOST or SCHEME://HOST:PORT, "
                "such as https://example.org");
}
