//===- Talk.h - A chat: messages, answers, commands -------------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_TALK_H
#define QWEN_RUN_CHAT_TALK_H

#include "chat/AnswerView.h"
#include "chat/Conversation.h"
#include "chat/LineInput.h"
#include "engine/Session.h"
#include "model/Model.h"
#include "server/Parameters.h"
#include "text/AnswerParser.h"

#include <span>

namespace qwen::run {

struct TalkOptions {
  /// Maximum number of tokens of an answer.
  std::optional<int64_t> count;
  SamplerOptions sampling = {};
  /// The template's enable_thinking; nothing: its own default.
  std::optional<bool> thinking;
  /// Tools that the model may call, in OpenAI's form; they do not run.
  nlohmann::ordered_json tools = nlohmann::ordered_json::array();
  /// Keeps the pages of prompts with this root; null: nothing does.
  PageStore *store = nullptr;
  RootRef root = {};
  /// Read special tokens in messages.
  bool allowSpecial = false;
  /// Whether a person types: commands, notes and lines of figures.
  bool isInteractive = false;
  /// Standard output and standard error.
  Screen output, notes;
};

/// Figures of an answer.
struct AnswerStats {
  /// Tokens of the prompt; those that earlier prompts had not run.
  int64_t promptTokens = 0, runTokens = 0;
  int64_t answerTokens = 0, reasoningTokens = 0;
  /// Seconds up to the first token, and from there to the last.
  double promptSeconds = 0, answerSeconds = 0;
  uint64_t seed = 0;

  /// Tokens per second after the first token; 0 if unknown.
  double answerRate() const;
};

class Talk {
public:
  /// `engine` is the model's. All three must outlive the object.
  Talk(const Model &model, Engine &engine, LineInput &input,
       const TalkOptions &options);

  /// Answers messages until the input ends. Returns the number of messages
  /// that got no answer, but for those that Ctrl-C ended. Throws Error.
  int64_t run();

private:
  friend struct ChatCommandRow;

#define QWEN_CHAT_COMMAND(Name, Argument, Help, Function)                      \
  void Function(const std::string &argument);
#include "chat/ChatCommands.def"

  /// Tells the user what happened, or an error.
  void note(const std::string &text) const;
  /// Tells two columns, one below the other on a narrow terminal.
  void noteRow(const std::string &left, const std::string &right) const;
  /// Reads a message. Returns false at the end of the input.
  bool readMessage(std::string &message, bool &isQuoted);
  /// Runs a command or answers a message.
  void take(const std::string &message, bool isQuoted);
  /// Runs the command if the line is one.
  bool runCommand(const std::string &line);
  /// Answers `message` in place of the last turn, which stays if that fails.
  void answerAgain(const std::string &message);
  /// Returns whether there was an answer.
  bool answerMessage(const std::string &message);
  void answer(const std::vector<int32_t> &prompt);
  /// Draws an answer and writes it. Returns its text, with the marks of
  /// reasoning.
  std::string draw(AnswerParser &parser);
  void tellFigures() const;

  const Model &model;
  const Engine &engine;
  LineInput &input;
  const Tokenizer &tokenizer;
  const ModelInfo &info;
  const std::vector<int32_t> ends;
  const server::ParameterLimits limits;
  const bool isInteractive;
  const Screen notes;
  const std::function<void(const std::string &)> report;
  Conversation conversation;
  Session session;
  AnswerView view;
  CallOptions calls;
  SamplerOptions sampling;
  std::optional<int64_t> count;
  AnswerStats last;
  /// Whether the next answer has the seed as it is, also a regenerated one.
  bool hasNewSeed = true;
  bool hasEnded = false;
  int64_t refused = 0;
};

/// A row of ChatCommands.def.
struct ChatCommandRow {
  std::string_view name, argument, help;
  void (Talk::*run)(const std::string &argument);

  static std::span<const ChatCommandRow> all();
  /// "/save FILE".
  std::string usage() const;
};

/// A line that is a command, with its argument.
struct ChatCommandLine {
  const ChatCommandRow *row;
  std::string argument;
};

/// Reads a line such as "/save FILE". A line whose first word is not a slash
/// and letters is no command. Throws Error if there is no such command, or if
/// it needs an argument or takes none.
std::optional<ChatCommandLine> parseChatCommand(std::string_view line);

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_TALK_H
