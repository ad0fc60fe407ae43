//===- Chat.cpp - Talks in the model's chat format ------------------------===//

#include "Commands.h"
#include "Options.h"
#include "Output.h"
#include "engine/Session.h"
#include "text/AnswerParser.h"
#include "text/Unicode.h"

#include "qwen/Support/Error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <unistd.h>
#include <utility>

using namespace qwen;
using namespace qwen::run;
using nlohmann::ordered_json;

namespace {
struct ChatCommand : RunFlags {
  /// A file with the template in place of the model's, or empty.
  std::string chatTemplate;
  std::optional<int64_t> count;
  SamplingFlags sampling;
  /// The template's enable_thinking; nothing if no flag sets it.
  std::optional<bool> thinking;
  /// Read special tokens in the user's lines and in answers.
  bool allowSpecial = false;
  SnapshotFlags snapshots;
};
} // namespace

static volatile sig_atomic_t interrupted = 0;

static void interrupt(int) { interrupted = 1; }

/// Makes Ctrl-C set `interrupted` and end reads with EINTR.
static void catchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = interrupt;
  sigaction(SIGINT, &action, nullptr);
}

namespace {
/// Reads standard input line by line, with a prompt on a terminal.
class LineReader {
public:
  /// Cuts a longer line after `mostBytes` + 1 bytes.
  explicit LineReader(uint64_t mostBytes) : mostBytes(mostBytes) {}

  /// The next line without its newline, or nothing at the end of the input.
  std::optional<std::string> next();

private:
  const uint64_t mostBytes;
  std::string held;
  bool ended = false;
};

/// The turns so far, as the chat template's variables.
class Conversation {
public:
  Conversation(const ModelInfo &model, const Tokenizer &tokenizer,
               const ChatFormat &format, const ChatCommand &command);

  /// Adds a line of the user and returns the prompt for its answer. Forgets the
  /// oldest turns if the context is too small for all. Returns nothing and
  /// changes nothing if the line does not fit even so, or if Ctrl-C ends the
  /// rendering. Reports each of the three on standard error.
  std::optional<std::vector<int32_t>> addLine(const std::string &line);
  void addAnswer(const std::string &text);
  /// The number of tokens of `prompt`, the last that addLine returned, that the
  /// next prompt may begin with.
  int64_t snapshotAt(std::span<const int32_t> prompt) const {
    return format.conversationLength(prompt, variablesWithout(0),
                                     {.allowSpecial = allowSpecial});
  }

private:
  /// The first message after `turns` turns.
  ordered_json::array_t::const_iterator messageOf(size_t turns) const {
    return messages.begin() + static_cast<std::ptrdiff_t>(2 * turns);
  }
  /// The template's variables without the `turns` oldest turns.
  ordered_json variablesWithout(size_t turns) const;
  std::vector<int32_t> promptWithout(size_t turns) const;
  std::optional<std::vector<int32_t>> fitLine(const std::string &line);
  size_t turnsToForget() const;
  bool fits(const std::vector<int32_t> &tokens) const {
    return static_cast<int64_t>(tokens.size()) <= model.context;
  }
  void sayRefused(const std::string &length) const;

  const ModelInfo &model;
  const Tokenizer &tokenizer;
  const ChatFormat &format;
  const bool allowSpecial;
  ordered_json variables = {{"add_generation_prompt", true}};
  /// Messages of user and assistant alternate.
  ordered_json::array_t messages;
};
} // namespace

std::optional<std::string> LineReader::next() {
  const bool terminal = isTerminal(STDIN_FILENO) && isTerminal(STDERR_FILENO);
  if (terminal)
    writeError("> ");
  for (size_t searched = 0;;) {
    const size_t end = held.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = held.substr(0, end);
      held.erase(0, end + 1);
      if (line.ends_with('\r'))
        line.pop_back();
      return line;
    }
    if (ended) {
      if (held.empty())
        return std::nullopt;
      return std::exchange(held, "");
    }
    if (held.size() > mostBytes)
      held.resize(mostBytes + 1);
    searched = held.size();
    char buffer[4096];
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) {
      // Ctrl-C at the prompt begins a new line.
      held.clear();
      searched = 0;
      if (terminal)
        writeError("\n> ");
      continue;
    }
    if (got < 0)
      throw Error(std::string("cannot read standard input: ") +
                  strerror(errno));
    if (got == 0) {
      ended = true;
      if (terminal)
        writeError("\n");
    }
    held.append(buffer, static_cast<size_t>(got));
  }
}

//===----------------------------------------------------------------------===//
// Conversation
//===----------------------------------------------------------------------===//

static void say(const std::string &what) {
  writeError("qwen-run: " + what + "\n");
}

Conversation::Conversation(const ModelInfo &chatModel,
                           const Tokenizer &chatTokenizer,
                           const ChatFormat &chatFormat,
                           const ChatCommand &command)
    : model(chatModel), tokenizer(chatTokenizer), format(chatFormat),
      allowSpecial(command.allowSpecial) {
  if (command.thinking)
    variables["enable_thinking"] = *command.thinking;
}

ordered_json Conversation::variablesWithout(size_t turns) const {
  ordered_json context = variables;
  context["messages"] = ordered_json::array_t(messageOf(turns), messages.end());
  return context;
}

/// The tokens of the conversation without its `turns` oldest turns.
std::vector<int32_t> Conversation::promptWithout(size_t turns) const {
  return format.encode(
      variablesWithout(turns),
      {.allowSpecial = allowSpecial, .stop = [] { return interrupted != 0; }});
}

/// The number of oldest turns to forget, so that a quarter of the context is
/// free for the answer. It is the number of all turns if that does not help.
size_t Conversation::turnsToForget() const {
  const int64_t most = model.context - model.context / 4;
  size_t least = 1;
  for (size_t enough = messages.size() / 2; least < enough;) {
    const size_t middle = (least + enough) / 2;
    if (static_cast<int64_t>(promptWithout(middle).size()) > most)
      least = middle + 1;
    else
      enough = middle;
  }
  return least;
}

void Conversation::sayRefused(const std::string &length) const {
  say("the line gets no answer: it has " + length + " when " +
      model.describeContext());
}

/// addLine, except that Ctrl-C keeps the line and throws Error.
std::optional<std::vector<int32_t>>
Conversation::fitLine(const std::string &line) {
  const uint64_t mostBytes = tokenizer.mostBytes(model.context);
  if (line.size() > mostBytes) {
    sayRefused("more than " + std::to_string(mostBytes) + " bytes");
    return std::nullopt;
  }
  // Checked before rendering, for a template may run out of steps on a very
  // long line.
  const std::vector<int32_t> alone = tokenizer.encode(line, false);
  if (!fits(alone)) {
    sayRefused(std::to_string(alone.size()) + " tokens");
    return std::nullopt;
  }
  const size_t turns = messages.size() / 2;
  messages.push_back({{"role", "user"}, {"content", line}});
  std::vector<int32_t> prompt = promptWithout(0);
  const size_t whole = prompt.size();
  size_t forgotten = 0;
  if (!fits(prompt) && turns) {
    forgotten = turnsToForget();
    prompt = promptWithout(forgotten);
  }
  if (!fits(prompt)) {
    messages.pop_back();
    sayRefused(std::to_string(prompt.size()) + " tokens in the chat format");
    return std::nullopt;
  }
  if (forgotten) {
    messages.erase(messages.begin(), messageOf(forgotten));
    say("the conversation forgets the oldest " + std::to_string(forgotten) +
        " of " + std::to_string(turns) + " turns: it has " +
        std::to_string(whole) + " tokens when " + model.describeContext());
  }
  return prompt;
}

std::optional<std::vector<int32_t>>
Conversation::addLine(const std::string &line) {
  const size_t before = messages.size();
  try {
    return fitLine(line);
  } catch (const Error &error) {
    if (!interrupted)
      throw;
    messages.resize(before);
    say(error.what());
    return std::nullopt;
  }
}

void Conversation::addAnswer(const std::string &text) {
  messages.push_back({{"role", "assistant"}, {"content", text}});
}

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

namespace {
/// Writes an answer, with its reasoning in dim letters.
class AnswerPrinter {
public:
  void write(const AnswerEvents &events) {
    for (const AnswerEvent &event : events) {
      const bool isReasoning = event.kind == AnswerEventKind::Reasoning;
      if (isReasoning && !isDim)
        writeOut("\x1b[2m");
      if (!isReasoning && isDim)
        writeOut(event.text.empty() ? "\x1b[22m" : "\x1b[22m\n\n");
      isDim = isReasoning;
      writeOut(event.text);
    }
  }

private:
  bool isDim = false;
};
} // namespace

/// Streams one answer and returns its text, with the reasoning and its marks.
/// Reports a full context on standard error.
static std::string answer(Session &session, AnswerParser &parser,
                          const Tokenizer &tokenizer, const ModelInfo &model,
                          const std::vector<int32_t> &ends,
                          std::optional<int64_t> most) {
  std::string text;
  AnswerPrinter printer;
  bool stopped = false;
  for (int64_t count = 0; !most || count < *most; ++count) {
    const std::optional<int32_t> id =
        session.next([] { return interrupted != 0; });
    stopped = !id;
    if (!id || std::ranges::find(ends, *id) != ends.end())
      break;
    printer.write(parser.push(*id));
    if (!tokenizer.isSpecial(*id))
      text += tokenizer.tokenBytes(*id);
  }
  printer.write(parser.finish());
  writeOut("\n");
  if (stopped && std::cmp_greater(session.tokens().size(), model.context))
    say("the answer ends because the context is full: " +
        model.describeContext());
  return toValidUtf8(text);
}

static void chat(const ChatCommand &command) {
  std::string chatTemplate = readTemplate(command.chatTemplate);
  Model model(command.file.path(), std::move(chatTemplate));
  const Manifest &manifest = model.manifest();
  manifest.model.output.requireLogits(model.path());
  const Tokenizer &tokenizer = model.tokenizer();
  const ChatFormat &format = model.chatFormat();
  const AnswerFormat &answers = model.answerFormat();
  Conversation conversation(manifest.model, tokenizer, format, command);
  EngineOptions options = command.options(model);
  options.snapshotBytes = command.snapshots.bytes;
  Engine &engine = command.start(model, options);
  const std::vector<int32_t> ends =
      format.endTokens(manifest.generation.eosTokenIds);
  Session session(engine, command.sampling.apply(manifest.generation), ends,
                  command.snapshots.every);

  catchInterrupts();
  LineReader lines(tokenizer.mostBytes(manifest.model.context));
  int64_t refused = 0;
  while (const std::optional<std::string> line = lines.next()) {
    if (line->empty())
      continue;
    interrupted = 0;
    const std::optional<std::vector<int32_t>> prompt =
        conversation.addLine(*line);
    if (!prompt) {
      // Ctrl-C is no refusal.
      refused += interrupted == 0;
      continue;
    }
    session.setTokens(*prompt, engine.state().maxSnapshots()
                                   ? conversation.snapshotAt(*prompt)
                                   : 0);
    // A program that reads the answer finds the marks.
    AnswerParser parser(
        tokenizer, isTerminal(STDOUT_FILENO) ? &answers : nullptr, *prompt, {});
    conversation.addAnswer(answer(session, parser, tokenizer, manifest.model,
                                  ends, command.count));
  }
  finishCheck(model);
  // The status tells a script what it cannot see on standard error.
  if (refused && !isTerminal(STDIN_FILENO))
    throw Error(std::to_string(refused) + " of the lines got no answer");
}

void qwen::run::addChat(CLI::App &app) {
  const auto command = std::make_shared<ChatCommand>();
  CLI::App *sub = app.add_subcommand(
      "chat", "Chat with the model, one line per turn; Ctrl-C stops an answer");
  addFile(sub, command->file);
  addNumber(sub, "-n,--count", command->count, "Maximum tokens of an answer", 0,
            kMost);
  addSampling(sub, command->sampling);
  // A function, because CLI11 would fill a bound optional without a flag too.
  sub->add_flag_function(
      "--think,!--no-think",
      [command](int64_t count) { command->thinking = count > 0; },
      "Set enable_thinking of the chat template to true or false");
  sub->add_option("--chat-template", command->chatTemplate,
                  "Chat template (Jinja) in place of the model's")
      ->type_name("FILE");
  sub->add_flag("--allow-special", command->allowSpecial,
                "Read special tokens in the text of messages");
  addSnapshots(sub, command->snapshots);
  addRun(sub, *command);
  sub->callback([command] { chat(*command); });
}
