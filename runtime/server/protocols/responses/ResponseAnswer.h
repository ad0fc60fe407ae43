//===- ResponseAnswer.h - The answers of /v1/responses ----------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_RESPONSEANSWER_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_RESPONSEANSWER_H

#include "server/Answer.h"
#include "server/Service.h"
#include "server/protocols/responses/CustomText.h"
#include "server/protocols/responses/Responses.h"

namespace qwen::server::responses {

/// Writes the items of an answer as a response, or as events: of the response,
/// and of each item from its begin to its end.
class ResponseAnswer final : public Answer {
public:
  ResponseAnswer(const Service &service, ResponseParameters parameters);

private:
  /// An item of the answer.
  struct Item {
    ItemKind kind;
    std::string id;
    /// Of a call: its own id and its tool.
    std::string callId = {};
    ToolName tool = {};
    /// Text; of a call its arguments, or the text of a custom one.
    std::string text = {};
    CustomText custom = {};
    std::vector<TokenRecord> tokens = {};
    /// Null while it goes on.
    const char *status = nullptr;
  };

  std::string opening() override;
  std::string write(Delta delta) override;
  std::string finish() override;
  std::string fail(const ApiError &error) override;

  /// Each appends events to `text`, if the answer is one of events.
  void emit(const char *type, const nlohmann::ordered_json &members,
            std::string &text);
  /// An event of the last item.
  void emitOfItem(const char *type, const nlohmann::ordered_json &members,
                  std::string &text);
  void beginItem(const ItemDelta &part, std::string &text);
  void addText(const std::string &more, std::vector<TokenRecord> tokens,
               std::string &text);
  void endItem(const char *status, std::string &text);
  /// Takes a part of an item.
  void takePart(ItemDelta &part, const char *status, std::string &text);

  /// The item as it stands in "output".
  nlohmann::ordered_json itemOf(const Item &item) const;
  /// The only part of the content of a text or of reasoning.
  nlohmann::ordered_json partOf(const Item &item) const;
  nlohmann::ordered_json logprobsOf(const std::vector<TokenRecord> &of) const;
  nlohmann::ordered_json responseOf(const char *status) const;
  nlohmann::ordered_json usageOf() const;

  const ResponseParameters asked;
  const Tokenizer &tokenizer;
  const std::string model, id;
  const int64_t created;
  std::vector<Item> items;
  Finish ended = Finish::None;
  /// The error that ended the answer; null without one.
  nlohmann::ordered_json failure;
  int64_t events = 0;
};

} // namespace qwen::server::responses

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_RESPONSEANSWER_H
