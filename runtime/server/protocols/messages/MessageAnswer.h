//===- MessageAnswer.h - Answers of content blocks --------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_MESSAGEANSWER_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_MESSAGEANSWER_H

#include "server/Answer.h"

namespace qwen::server::messages {

/// Errors are {"type": "error", "error": {"type", "message"}}, and a stream
/// that waits has events "ping".
extern const Framing kFraming;

/// An answer whose items are content blocks: text, thinking and tool_use.
class MessageAnswer final : public Answer {
public:
  explicit MessageAnswer(std::string modelName);

private:
  /// The block of a stream that is open.
  struct Open {
    /// Its item, and its number among the blocks.
    size_t item, index;
    ItemKind kind;
  };

  std::string write(Delta delta) override;
  std::string finish() override;

  /// An event whose data has its type, too.
  std::string eventOf(const char *type,
                      const nlohmann::ordered_json &data) const;
  /// The message without its content and its end.
  nlohmann::ordered_json head(const nlohmann::ordered_json &content,
                              const nlohmann::ordered_json &usage) const;
  nlohmann::ordered_json usage(const Usage &tokens) const;
  /// Why the answer has ended, by the words of the protocol.
  const char *stopReason() const;
  nlohmann::ordered_json stopSequence() const;
  /// The events of a part of an item.
  std::string writePart(const ItemDelta &part);
  std::string open(const ItemDelta &part);
  std::string close();

  const std::string model, id;
  bool hasBegun = false;
  /// Number of blocks that have begun.
  size_t blocks = 0;
  std::optional<Open> block;
};

} // namespace qwen::server::messages

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_MESSAGEANSWER_H
