//===- Access.h - Who may send requests -------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_ACCESS_H
#define QWEN_RUNTIME_SERVER_HTTP_ACCESS_H

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen::server {

/// The index of the first of `keys` that is in `authorization` ("Bearer KEY")
/// or, if that has another scheme, is `key`. Nothing if none is.
std::optional<size_t> findKey(std::string_view authorization,
                              std::string_view key,
                              const std::vector<std::string> &keys);

/// The API keys in the lines of a file. Empty lines, and those that begin with
/// "#", have none. Throws Error if there is none, or as requireKey does.
std::vector<std::string> keysOf(const std::string &text,
                                const std::string &file);

/// Throws Error for a key that no client can send as it is: with control
/// characters, with spaces at its ends or behind a byte order mark. `place` is
/// where it stands; the error has no part of the key.
void requireKey(const std::string &key, const std::string &place);

/// Whether `host`, with or without a port in digits, names this machine, or is
/// the host of `listen`. A page that a browser got elsewhere has another host,
/// even if its name leads here.
bool isLocalHost(std::string_view host, std::string_view listen);

/// Whether the page of an Origin may send requests. "*" allows all, and
/// "localhost" those that a server of this machine has, on any port.
bool isAllowedOrigin(std::string_view origin,
                     const std::vector<std::string> &allowed);

/// Throws Error for an element of --cors-origins that no browser sends as its
/// Origin.
void requireOrigin(const std::string &origin);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_ACCESS_H
