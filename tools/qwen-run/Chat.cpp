//===- Chat.cpp - Talks in the model's chat format ------------------------===//

#include "ChatTemplate.h"
#include "Commands.h"
#include "Output.h"
#include "Session.h"

#include "qwen/ABI/Error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;
using nlohmann::ordered_json;

static volatile sig_atomic_t interrupted = 0;

static void interrupt(int) { interrupted = 1; }

/// Makes Ctrl-C set `interrupted`, and reads end with EINTR.
static void catchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = interrupt;
  sigaction(SIGINT, &action, nullptr);
}

namespace {
/// Reads standard input line by line, with a prompt on a terminal.
class LineReader {
public:
  /// The next line without its end; nothing at the end of the input.
  std::optional<std::string> next();

private:
  std::string held;
  bool ended = false;
};
} // namespace

std::optional<std::string> LineReader::next() {
  const bool terminal = isTerminal(STDIN_FILENO) && isTerminal(STDERR_FILENO);
  if (terminal)
    writeError("> ");
  while (true) {
    const size_t end = held.find('\n');
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
    char buffer[4096];
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) {
      // Ctrl-C at the prompt begins a new line.
      held.clear();
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

/// Ids that end an answer: those of the generation config, and ChatML's end of
/// a turn, which the config of base models lacks.
static std::vector<int32_t> endIds(const Artifact &artifact,
                                   const Tokenizer &tokenizer) {
  std::vector<int32_t> ids = artifact.manifest().generation.eosTokenIds;
  for (std::optional<int32_t> id :
       {tokenizer.findAddedToken("<|im_end|>"), tokenizer.eosToken()})
    if (id)
      ids.push_back(*id);
  return ids;
}

/// The text of the conversation so far; nothing, after a line that says so,
/// where Ctrl-C ends the rendering.
static std::optional<std::string> renderPrompt(const ChatTemplate &chatTemplate,
                                               const ordered_json &context) {
  try {
    return chatTemplate.render(context, [] { return interrupted != 0; });
  } catch (const Error &error) {
    if (!interrupted)
      throw;
    writeError(std::string("qwen-run: ") + error.what() + "\n");
    return std::nullopt;
  }
}

/// Streams one answer and returns its text.
static std::string answer(Session &session, const Tokenizer &tokenizer,
                          const std::vector<int32_t> &ends,
                          std::optional<int64_t> most) {
  std::string text;
  Utf8Stream characters;
  const auto write = [&](const std::string &piece) {
    writeOut(piece);
    text += piece;
  };
  for (int64_t count = 0; !most || count < *most; ++count) {
    const std::optional<int32_t> id =
        session.next([] { return interrupted != 0; });
    if (!id || std::ranges::find(ends, *id) != ends.end())
      break;
    if (!tokenizer.isSpecial(*id))
      write(characters.push(tokenizer.tokenBytes(*id)));
  }
  write(characters.finish());
  writeOut("\n");
  return text;
}

void qwen::run::chat(const ChatCommand &command) {
  const Artifact artifact(command.file);
  const Tokenizer tokenizer = openTokenizer(artifact);
  if (artifact.chatTemplate().empty())
    throw Error(command.file + " has no chat template, because its checkpoint "
                               "had none; use generate");
  const ChatTemplate chatTemplate =
      ChatTemplate::parse(artifact.chatTemplate());
  EngineOptions options;
  options.threads = limitThreads(command.threads);
  options.lock = command.lock;
  options.check = limitCheck(command.check, artifact);
  Engine engine(artifact, options);
  Session session(engine,
                  command.sampling.apply(artifact.manifest().generation));
  const std::vector<int32_t> ends = endIds(artifact, tokenizer);
  const auto spelling = [&](std::optional<int32_t> id) {
    return id ? ordered_json(std::string(tokenizer.tokenBytes(*id)))
              : ordered_json();
  };

  ordered_json context = {{"messages", ordered_json::array()},
                          {"add_generation_prompt", true},
                          {"bos_token", spelling(tokenizer.bosToken())},
                          {"eos_token", spelling(tokenizer.eosToken())}};
  if (command.thinking)
    context["enable_thinking"] = *command.thinking;
  catchInterrupts();
  LineReader lines;
  while (const std::optional<std::string> line = lines.next()) {
    if (line->empty())
      continue;
    ordered_json &messages = context["messages"];
    messages.push_back({{"role", "user"}, {"content", *line}});
    interrupted = 0;
    const std::optional<std::string> prompt =
        renderPrompt(chatTemplate, context);
    if (!prompt) {
      messages.erase(messages.size() - 1);
      continue;
    }
    session.setTokens(tokenizer.encode(*prompt));
    messages.push_back(
        {{"role", "assistant"},
         {"content", answer(session, tokenizer, ends, command.count)}});
  }
  finishCheck(engine, artifact);
}
