//===- ChatTemplate.h - From messages to a prompt ---------------*- C++ -*-===//
//
// Renders the Jinja chat template of a checkpoint as Hugging Face transformers
// does (trim_blocks, lstrip_blocks, its tojson and raise_exception).
// docs/decisions/0002-chat-templates.md lists the supported parts of Jinja.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_JINJA_CHATTEMPLATE_H
#define QWEN_RUNTIME_JINJA_CHATTEMPLATE_H

#include "text/MarkedText.h"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace qwen {

namespace jinja {
struct Template;
} // namespace jinja

/// Immutable, so any number of threads may render it at the same time.
class ChatTemplate {
public:
  /// The largest source. Published templates are far smaller.
  static constexpr size_t kMaxBytes = size_t{1} << 20;

  /// Throws Error, with the line, if `source` is not a template, uses something
  /// that is not supported or is larger than kMaxBytes.
  static ChatTemplate parse(std::string_view source);

  /// Renders with the variables of the object `input`: `messages`, optionally
  /// `tools`, `documents`, `add_generation_prompt`, and any others that the
  /// template reads (`enable_thinking`). The object `own` has variables of the
  /// model, whose texts count as the template's; `input` comes before it. By
  /// default `tools` and `documents` are none and `add_generation_prompt` is
  /// false.
  ///
  /// Throws Error, with the line, if the template fails or calls
  /// raise_exception, if it exceeds the limits of time (about a second), memory
  /// or depth, or if `stop` returns true, which is called about every
  /// millisecond.
  MarkedText render(const nlohmann::ordered_json &input,
                    const nlohmann::ordered_json &own,
                    const std::function<bool()> &stop = {}) const;

private:
  std::shared_ptr<const jinja::Template> root;
};

} // namespace qwen

#endif // QWEN_RUNTIME_JINJA_CHATTEMPLATE_H
