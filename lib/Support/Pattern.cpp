//===- Pattern.cpp - Regular expressions of users -------------------------===//

#include "qwen/Support/Pattern.h"

#include "qwen/Support/Text.h"

#include <re2/re2.h>

using namespace qwen;

Pattern::Pattern(std::string_view text, const ErrorText &owner)
    : regex(std::make_unique<RE2>(text, RE2::Quiet)) {
  if (!regex->ok())
    throw Error(owner + " has the regular expression " +
                part::found(quote(text)) + ", which RE2 does not read (" +
                printable(regex->error()) +
                "); look-around and back-references are not supported");
}

Pattern::Pattern(Pattern &&) noexcept = default;
Pattern::~Pattern() = default;

static bool matches(const RE2 &regex, std::string_view name,
                    RE2::Anchor anchor) {
  return regex.Match(name, 0, name.size(), anchor, nullptr, 0);
}

bool Pattern::matchesStart(std::string_view name) const {
  return matches(*regex, name, RE2::ANCHOR_START);
}

bool Pattern::matchesWhole(std::string_view name) const {
  return matches(*regex, name, RE2::ANCHOR_BOTH);
}

bool Pattern::matchesPart(std::string_view name) const {
  return matches(*regex, name, RE2::UNANCHORED);
}
