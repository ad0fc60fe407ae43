//===- Model.h - A compiled model, opened -----------------------*- C++ -*-===//
//
// What programs need of one artifact: its file, tokenizer and chat format.
// MakeEngine.h runs it.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_MODEL_MODEL_H
#define QWEN_RUNTIME_MODEL_MODEL_H

#include "artifact/Artifact.h"
#include "model/ChatFormat.h"
#include "text/AnswerFormat.h"

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace qwen {

/// Any number of threads may call the constant functions.
class Model {
public:
  /// Opens an artifact. Throws Error. `chatTemplate` takes the place of its
  /// chat template, if it is not empty.
  explicit Model(const std::string &path, std::string chatTemplate = {});

  const Artifact &artifact() const { return file; }
  const std::string &path() const { return file.path(); }
  const Manifest &manifest() const { return file.manifest(); }
  const ModelInfo &info() const { return manifest().model; }

  /// For Root::artifact: the model's name, the checksum of the header, which
  /// has the checksums of all parts, and the target whose code this machine
  /// runs. Throws Error if it runs none.
  std::string identity() const;

  bool hasTokenizer() const { return textTokenizer.has_value(); }
  /// Throws Error if the checkpoint had no tokenizer.
  const Tokenizer &tokenizer() const;
  /// The source of the chat template; empty if there is none.
  std::string_view chatTemplate() const {
    return ownTemplate.empty() ? file.chatTemplate() : ownTemplate;
  }
  bool hasChatFormat() const { return !chatTemplate().empty(); }
  /// Throws Error if the checkpoint had no chat template or no tokenizer, or if
  /// the template is not supported.
  const ChatFormat &chatFormat() const;

  /// The sections of its answers. Throws Error like `tokenizer`.
  const AnswerFormat &answerFormat() const {
    (void)tokenizer();
    return *answers;
  }

private:
  const Artifact file;
  const std::string ownTemplate;
  std::optional<Tokenizer> textTokenizer;
  /// The sections of answers, if there is a tokenizer.
  std::optional<const AnswerFormat> answers;
  /// Guards `format`, which is made when it is first needed.
  mutable std::once_flag formatMade;
  mutable std::optional<const ChatFormat> format;
};

} // namespace qwen

#endif // QWEN_RUNTIME_MODEL_MODEL_H
