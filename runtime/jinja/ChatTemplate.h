//===- ChatTemplate.h - From messages to a prompt ---------------*- C++ -*-===//
//
// Renders the Jinja chat template of a checkpoint as Hugging Face transformers
// does (trim_blocks, lstrip_blocks, its tojson and raise_exception).
// docs/decisions/0002-chat-templates.md says what of Jinja there is.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_JINJA_CHATTEMPLATE_H
#define QWEN_RUNTIME_JINJA_CHATTEMPLATE_H

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace qwen {

namespace jinja {
struct Template;
} // namespace jinja

/// Immutable: any number of threads may render one template at once.
class ChatTemplate {
public:
  /// Throws Error, with the line, for source that is no template, uses what is
  /// not supported or has more than 1 MiB.
  static ChatTemplate parse(std::string_view source);

  /// Renders with the variables of the object `context`: `messages`, and where
  /// wanted `tools`, `documents`, `add_generation_prompt`, `bos_token`,
  /// `eos_token`, and what else the template reads (`enable_thinking`).
  /// `tools` and `documents` are none and `add_generation_prompt` is false
  /// where they are missing. Throws Error, with the line, where the template
  /// fails or calls raise_exception, takes more time (about a second), memory
  /// or depth than any honest one, or `stop` returns true. `stop` is called
  /// every millisecond or so.
  std::string render(const nlohmann::ordered_json &context,
                     const std::function<bool()> &stop = {}) const;

private:
  std::shared_ptr<const jinja::Template> root;
};

} // namespace qwen

#endif // QWEN_RUNTIME_JINJA_CHATTEMPLATE_H
