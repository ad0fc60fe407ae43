//===- CustomText.h - The text of a call of a custom tool -------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_CUSTOMTEXT_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_CUSTOMTEXT_H

#include <string>
#include <string_view>

namespace qwen::server::responses {

/// Takes the text of a custom tool's call out of the arguments of the function
/// that stands for it, {"input": "..."}, as they come.
class CustomText {
public:
  /// Takes a part of the arguments. Returns what it has of the text.
  std::string push(std::string_view json);
  /// The text, all of whose arguments have come, if `push` returned none of it:
  /// of arguments of another form, the only string, or else all of them as
  /// JSON; empty if they are broken.
  std::string finish() const;

private:
  enum class State : uint8_t { Before, Inside, Behind };
  State state = State::Before;
  /// What has come before the text; then an escape that is not complete.
  std::string held;
};

} // namespace qwen::server::responses

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_CUSTOMTEXT_H
