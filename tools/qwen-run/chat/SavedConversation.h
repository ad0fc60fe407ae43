//===- SavedConversation.h - A conversation as a request --------*- C++ -*-===//
//
// A saved conversation is the body of a request of /v1/chat/completions: the
// messages, and what the next answer depends on.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_CHAT_SAVEDCONVERSATION_H
#define QWEN_RUN_CHAT_SAVEDCONVERSATION_H

#include "engine/Sampler.h"
#include "server/Parameters.h"

#include <optional>
#include <string>

namespace qwen::run {

struct SavedConversation {
  /// As Conversation::messages.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  /// Variables of the chat template.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  /// With the seed.
  SamplerOptions sampling = {};
  /// Maximum number of tokens of an answer.
  std::optional<int64_t> count;
};

/// The JSON text of a request. Throws Error if a value is beyond the range of
/// requests.
std::string requestOf(const SavedConversation &saved,
                      const server::ParameterLimits &limits);

/// Reads a request with the parser of the server. What the request does not
/// set, but messages and variables, stays. Throws ApiError as the server
/// answers it; a parameter that has no meaning in a chat is unknown.
void readRequest(std::string_view text, const server::ParameterLimits &limits,
                 SavedConversation &to);

/// Sets the option of the sampler `name` to the JSON number `value`, with the
/// ranges of requests. Throws Error.
void setOption(SamplerOptions &options, const std::string &name,
               const std::string &value, const server::ParameterLimits &limits);

/// The options of the sampler as lines of name, value and help.
struct OptionLine {
  std::string name, value, help;
};
std::vector<OptionLine> describeOptions(const SamplerOptions &options);

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_SAVEDCONVERSATION_H
