//===- ChatFormat.cpp - From messages to token ids ------------------------===//

#include "jinja/ChatFormat.h"

#include "text/Unicode.h"

#include "qwen/ABI/Error.h"
#include "qwen/ABI/Text.h"

#include <algorithm>

using namespace qwen;
using nlohmann::ordered_json;

//===----------------------------------------------------------------------===//
// The origin of characters
//===----------------------------------------------------------------------===//

namespace {

/// Replaces the characters of a caller's strings that could begin a special
/// token by stand-ins, one for one. A template may slice, trim and join the
/// strings; its own text has no stand-ins. After the rendering, stand-ins mark
/// where no special token may begin.
///
/// The texts of added tokens that are not special keep their first character,
/// because templates search for them (</think>).
class StandIns {
public:
  /// Stand-ins that `variables` do not have.
  StandIns(const Tokenizer &tokenizer, const ordered_json &variables);

  ordered_json mark(const ordered_json &value) const;
  /// The prompt with its real characters; `plain` gets their offsets.
  std::string unmark(std::string_view prompt, std::vector<size_t> &plain) const;

private:
  std::string markText(std::string_view text) const;

  const Tokenizer &tokenizer;
  /// The n-th stand-in is for the n-th start.
  std::u32string starts, standIns;
};

} // namespace

StandIns::StandIns(const Tokenizer &textTokenizer,
                   const ordered_json &variables)
    : tokenizer(textTokenizer), starts(tokenizer.specialStarts()) {
  // Unicode's noncharacters, which no text should have.
  constexpr char32_t kFirst = 0xfdd0, kLast = 0xfdef;
  const std::string all =
      variables.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  for (char32_t c = kFirst; c <= kLast && standIns.size() < starts.size();
       ++c) {
    std::string text;
    appendUtf8(text, c);
    if (all.find(text) == std::string::npos)
      standIns += c;
  }
  if (standIns.size() < starts.size())
    throw Error("the messages have too many of Unicode's noncharacters");
}

std::string StandIns::markText(std::string_view text) const {
  std::string marked;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const DecodedChar c = decodeUtf8(rest);
    const size_t start = starts.find(c.codePoint);
    if (start != std::u32string::npos && !tokenizer.beginsPlainAdded(rest))
      appendUtf8(marked, standIns[start]);
    else
      marked += rest.substr(0, c.length);
    i += c.length;
  }
  return marked;
}

ordered_json StandIns::mark(const ordered_json &value) const {
  if (value.is_string())
    return markText(value.get_ref<const std::string &>());
  if (!value.is_structured())
    return value;
  ordered_json marked =
      value.is_array() ? ordered_json::array() : ordered_json::object();
  for (const auto &[key, member] : value.items())
    if (value.is_array())
      marked.push_back(mark(member));
    else
      marked[markText(key)] = mark(member);
  return marked;
}

std::string StandIns::unmark(std::string_view prompt,
                             std::vector<size_t> &plain) const {
  std::string text;
  for (size_t i = 0; i < prompt.size();) {
    const DecodedChar c = decodeUtf8(prompt.substr(i));
    const size_t start = standIns.find(c.codePoint);
    if (start == std::u32string::npos) {
      text += prompt.substr(i, c.length);
    } else {
      plain.push_back(text.size());
      appendUtf8(text, starts[start]);
    }
    i += c.length;
  }
  return text;
}

//===----------------------------------------------------------------------===//
// ChatFormat
//===----------------------------------------------------------------------===//

ChatFormat::ChatFormat(std::string_view text, const Tokenizer &textTokenizer)
    : tokenizer(textTokenizer), source(ChatTemplate::parse(text)) {}

/// Cuts `prompt` after the content of the last message, as transformers does.
static void cutAfterContent(std::string &prompt, const ordered_json &messages) {
  const auto &content =
      messages.back()["content"].get_ref<const std::string &>();
  const size_t first = content.find_first_not_of(" \t\r\n");
  const size_t last = content.find_last_not_of(" \t\r\n");
  const std::string trimmed =
      first == std::string::npos ? "" : content.substr(first, last + 1 - first);
  const size_t at = trimmed.empty() ? std::string::npos : prompt.rfind(trimmed);
  if (at == std::string::npos)
    throw Error("the chat template does not write the last message, so that "
                "it cannot be continued");
  // The spaces of the content after it, if the template keeps them.
  const std::string rest = content.substr(last + 1);
  size_t end = at + trimmed.size();
  if (prompt.compare(end, rest.size(), rest) == 0)
    end += rest.size();
  prompt.resize(end);
}

std::vector<int32_t> ChatFormat::encode(const ordered_json &variables,
                                        const Options &options) const {
  std::optional<StandIns> standIns;
  if (!options.allowSpecial)
    standIns.emplace(tokenizer, variables);
  ordered_json context = templateVariables(tokenizer);
  context.update(standIns ? standIns->mark(variables) : variables);
  std::string prompt = toValidUtf8(source.render(context, options.stop));
  if (options.continueFinalMessage)
    cutAfterContent(prompt, context["messages"]);
  if (!standIns)
    return tokenizer.encode(prompt);
  std::vector<size_t> plain;
  prompt = standIns->unmark(prompt, plain);
  return tokenizer.encode(prompt, plain);
}

std::vector<int32_t> ChatFormat::endTokens(std::vector<int32_t> ends) const {
  for (std::optional<int32_t> id :
       {tokenizer.findAddedToken("<|im_end|>"), tokenizer.eosToken()})
    if (id)
      ends.push_back(*id);
  return ends;
}
