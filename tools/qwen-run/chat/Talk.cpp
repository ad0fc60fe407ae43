//===- Talk.cpp - A chat: messages and answers ----------------------------===//

#include "chat/Talk.h"

#include "Output.h"
#include "chat/Interrupt.h"
#include "chat/MessageLines.h"
#include "model/SamplerTexts.h"
#include "model/ToolFormat.h"
#include "text/Unicode.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>

using namespace qwen;
using namespace qwen::run;

double AnswerStats::answerRate() const {
  return answerTokens > 1 && answerSeconds > 0
             ? static_cast<double>(answerTokens - 1) / answerSeconds
             : 0;
}

Talk::Talk(const Model &talkModel, Engine &talkEngine, LineInput &lines,
           const TalkOptions &options)
    : model(talkModel), engine(talkEngine), input(lines),
      tokenizer(model.tokenizer()), info(model.info()),
      ends(model.chatFormat().endTokens(
          model.manifest().generation.eosTokenIds)),
      limits({.vocabSize = info.vocabSize,
              .dimensions = info.hiddenSize,
              .thinks = model.answerFormat().reasons()}),
      isInteractive(options.isInteractive), notes(options.notes),
      report([this](const std::string &line) { note(line); }),
      conversation(info, tokenizer, model.chatFormat(), options.allowSpecial,
                   report),
      session(talkEngine, options.sampling, ends, options.store, options.root),
      view(options.output), sampling(options.sampling), count(options.count) {
  if (options.thinking)
    conversation.variables["enable_thinking"] = *options.thinking;
  if (options.tools.empty())
    return;
  calls = {&findToolFormat(model.chatFormat()),
           std::make_shared<Tools>(toolsOf(options.tools, "--tools"))};
  conversation.tools = options.tools;
}

//===----------------------------------------------------------------------===//
// What the user types and reads
//===----------------------------------------------------------------------===//

void Talk::note(const std::string &text) const {
  if (isInteractive)
    writeError(wrapped(text, screenWidth(STDERR_FILENO)) + "\n");
  else
    writeError("qwen-run: " + text + "\n");
}

bool Talk::readMessage(std::string &message, bool &isQuoted) {
  MessageLines lines;
  std::string line;
  while (true) {
    switch (input.next(lines.isOpen() ? ". " : "> ", line)) {
    case ReadResult::Interrupted:
      if (isInteractive && !lines.isOpen() && line.empty())
        note("Ctrl-D or /exit leaves");
      lines.take();
      continue;
    case ReadResult::End:
      if (!lines.isOpen())
        return false;
      note("the message has no end, so it is not sent");
      lines.take();
      continue;
    case ReadResult::Line:
      break;
    }
    if (!isInteractive) {
      message = line;
      return true;
    }
    if (!lines.add(line))
      continue;
    isQuoted = lines.isQuoted();
    message = lines.take();
    if (!message.empty())
      input.remember(message);
    return true;
  }
}

int64_t Talk::run() {
  if (isInteractive)
    writeError(notes.dim(wrapped("/help lists the commands, Ctrl-D leaves",
                                 screenWidth(STDERR_FILENO))) +
               "\n");
  std::string message;
  bool isQuoted = false;
  while (!hasEnded && readMessage(message, isQuoted)) {
    if (message.empty())
      continue;
    if (!isInteractive) {
      answerMessage(message);
      continue;
    }
    try {
      take(message, isQuoted);
    } catch (const Error &error) {
      note(error.what());
    }
  }
  session.keep();
  return refused;
}

void Talk::take(const std::string &message, bool isQuoted) {
  if (!isQuoted)
    if (const std::optional<ChatCommandLine> command =
            parseChatCommand(message))
      return (this->*command->row->run)(command->argument);
  answerMessage(message);
}

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

namespace {
/// Restores the messages unless they shall stay.
class KeptMessages {
public:
  explicit KeptMessages(Conversation &of) : of(of), before(of.messages) {}
  ~KeptMessages() {
    if (!isDone)
      of.messages.swap(before);
  }
  KeptMessages(const KeptMessages &) = delete;
  KeptMessages &operator=(const KeptMessages &) = delete;
  void change() { isDone = true; }

private:
  Conversation &of;
  Conversation::Messages before;
  bool isDone = false;
};
} // namespace

bool Talk::answerMessage(const std::string &message) {
  KeptMessages kept(conversation);
  interrupted = 0;
  const std::optional<std::vector<int32_t>> prompt =
      conversation.addLine(message);
  if (!prompt) {
    // Ctrl-C is no refusal.
    refused += interrupted == 0;
    return false;
  }
  answer(*prompt);
  kept.change();
  return true;
}

void Talk::answerAgain(const std::string &message) {
  KeptMessages kept(conversation);
  conversation.removeTurn();
  if (answerMessage(message))
    kept.change();
}

void Talk::answer(const std::vector<int32_t> &prompt) {
  const int64_t runBefore = session.counts().promptTokens;
  resolveTexts(tokenizer, sampling);
  session.setSampling(sampling);
  session.setTokens(prompt, engine.state().maxSnapshots()
                                ? conversation.snapshotAt(prompt)
                                : 0);
  AnswerParser parser(tokenizer,
                      view.splits() ? &model.answerFormat() : nullptr, prompt,
                      {.calls = view.splits() ? calls : CallOptions()});
  last = {.promptTokens = std::ssize(prompt), .seed = sampling.seed};
  conversation.addAnswer(draw(parser));
  hasNewSeed = false;
  last.runTokens = session.counts().promptTokens - runBefore;
  last.reasoningTokens = parser.reasoningTokens();
  if (isInteractive)
    tellFigures();
}

std::string Talk::draw(AnswerParser &parser) {
  std::string text;
  bool isStopped = false;
  auto start = std::chrono::steady_clock::now();
  for (int64_t drawn = 0; !count || drawn < *count; ++drawn) {
    const std::optional<int32_t> id =
        session.next([] { return interrupted != 0; });
    isStopped = !id;
    if (!id)
      break;
    if (drawn == 0) {
      last.promptSeconds = secondsSince(start);
      start = std::chrono::steady_clock::now();
    }
    last.answerSeconds = secondsSince(start);
    ++last.answerTokens;
    if (std::ranges::find(ends, *id) != ends.end())
      break;
    writeOut(view.add(parser.push(*id)));
    if (!tokenizer.isSpecial(*id))
      text += tokenizer.tokenBytes(*id);
  }
  writeOut(view.add(parser.finish()) + view.finish());
  if (isStopped && std::cmp_greater(session.tokens().size(), info.context))
    note("the answer ends because the context is full: " +
         info.describeContext());
  return toValidUtf8(text);
}

/// "12.3".
static std::string decimal(double value) {
  char text[32];
  (void)std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

/// "1 token", "2 tokens".
static std::string tokens(int64_t count) {
  return std::to_string(count) + (count == 1 ? " token" : " tokens");
}

static int64_t contextLeft(const ModelInfo &info, const Session &session) {
  return std::max<int64_t>(info.context - std::ssize(session.tokens()), 0);
}

void Talk::tellFigures() const {
  const std::string line =
      "[" + tokens(last.answerTokens) + ", " + decimal(last.answerRate()) +
      " tokens/s, context left: " + tokens(contextLeft(info, session)) + "]";
  writeError(notes.dim(wrapped(line, screenWidth(STDERR_FILENO))) + "\n");
}

void Talk::stats(const std::string &) {
  const auto during = [](int64_t count, double seconds) {
    std::string text = " in " + decimal(seconds * 1000) + " ms";
    if (count > 0 && seconds > 0)
      text +=
          " (" + decimal(static_cast<double>(count) / seconds) + " tokens/s)";
    return text;
  };
  noteRow("prompt", tokens(last.promptTokens) + ", " +
                        std::to_string(last.runTokens) + " of them new" +
                        during(last.runTokens, last.promptSeconds));
  noteRow("answer", tokens(last.answerTokens) +
                        during(std::max<int64_t>(last.answerTokens - 1, 0),
                               last.answerSeconds) +
                        (last.reasoningTokens
                             ? ", " + std::to_string(last.reasoningTokens) +
                                   " of reasoning"
                             : ""));
  noteRow("context", tokens(contextLeft(info, session)) + " left of " +
                         std::to_string(info.context));
  noteRow("seed", std::to_string(last.seed));
}
