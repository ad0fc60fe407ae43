//===- Headers.cpp - Headers of requests and answers ----------------------===//

#include "server/http/Headers.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <ctime>

using namespace qwen;
using namespace qwen::server;

/// In the order of AnswerHeader.
static constexpr auto kNames = std::to_array<std::string_view>({
    "Accept-Encoding",
    "X-Accel-Buffering",
    "Allow",
    "Cache-Control",
    "Content-Encoding",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "Date",
    "ETag",
    "Process-Start-Time-Unix",
    "Referrer-Policy",
    "X-Request-Id",
    "Retry-After",
    "Server",
    "Vary",
    "WWW-Authenticate",
});
static_assert(kNames.size() ==
              static_cast<size_t>(AnswerHeader::WwwAuthenticate) + 1);

std::string_view server::nameOf(AnswerHeader header) {
  return kNames.at(static_cast<size_t>(header));
}

/// Adds a member to a list with commas.
static void addMember(std::string &list, std::string_view member) {
  if (!list.empty())
    list += ", ";
  list += member;
}

const std::string &server::exposedHeaders() {
  static const std::string list = [] {
    std::string names;
    for (std::string_view name : kNames)
      addMember(names, name);
    return names;
  }();
  return list;
}

static std::string_view trim(std::string_view text) {
  return trimmed(text, " \t");
}

static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

static bool isToken(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

/// The members of a list with commas.
static std::vector<std::string_view> membersOf(std::string_view list) {
  std::vector<std::string_view> members;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    members.push_back(trim(list.substr(0, comma)));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return members;
}

std::string server::tokensOf(std::string_view list) {
  std::string tokens;
  for (std::string_view member : membersOf(list))
    if (isToken(member))
      addMember(tokens, member);
  return tokens;
}

bool server::acceptsCoding(std::string_view list, std::string_view coding) {
  bool isAccepted = false;
  for (std::string_view member : membersOf(list)) {
    const size_t end = std::min(member.find(';'), member.size());
    const std::string_view name = trim(member.substr(0, end));
    const std::string_view weight = member.substr(end);
    // A weight of 0 ("q=0.0") refuses.
    const bool isTaken = weight.empty() || weight.find_first_of("123456789") !=
                                               std::string_view::npos;
    if (equalsNoCase(name, coding))
      return isTaken;
    isAccepted |= name == "*" && isTaken;
  }
  return isAccepted;
}

bool server::hasEntityTag(std::string_view list, std::string_view tag) {
  constexpr std::string_view kWeak = "W/";
  return std::ranges::any_of(membersOf(list), [&](std::string_view member) {
    if (member.starts_with(kWeak))
      member.remove_prefix(kWeak.size());
    return member == "*" || member == tag;
  });
}

bool server::equalsNoCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view server::mediaTypeOf(std::string_view contentType) {
  return trim(contentType.substr(0, contentType.find(';')));
}

std::string server::httpDate() {
  const time_t now = time(nullptr);
  tm parts;
  gmtime_r(&now, &parts);
  // The program keeps the locale "C", whose names these are.
  std::array<char, 40> text;
  const size_t size =
      strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), size};
}
