//===- Chat.cpp - Talks in the model's chat format ------------------------===//

#include "Commands.h"
#include "Options.h"
#include "Output.h"
#include "chat/Interrupt.h"
#include "chat/LineEditor.h"
#include "chat/Talk.h"
#include "chat/ToolsFile.h"
#include "engine/RootTable.h"
#include "store/DiskStore.h"

#include "server/ServerOptions.h"

#include "qwen/Support/Error.h"

#include <unistd.h>

using namespace qwen;
using namespace qwen::run;

namespace {
struct ChatCommand : RunFlags {
  ChatCommand() { engine.speculate = Speculate::Auto; }

  /// A file with the template in place of the model's, or empty.
  std::string chatTemplate;
  /// A file with tools, or empty.
  std::string tools;
  std::optional<int64_t> count;
  SamplingFlags sampling;
  /// The template's enable_thinking; nothing if no flag sets it.
  std::optional<bool> thinking;
  /// Read special tokens in the user's lines and in answers.
  bool allowSpecial = false;
  ColorMode color = ColorMode::Auto;
  /// The folder of the prompt cache, or empty, and the bytes of its files.
  std::string cacheFolder;
  uint64_t cacheBytes = server::ServerOptions().cacheBytes;
};
} // namespace

/// The history of the user, or null, with a line, if there can be none.
static std::unique_ptr<History> openHistory() {
  const std::string folder = stateFolder();
  if (folder.empty())
    return nullptr;
  try {
    return std::make_unique<History>(folder);
  } catch (const Error &error) {
    writeError(std::string("qwen-run: no history: ") + error.what() + "\n");
    return nullptr;
  }
}

/// Lines of a person, with an editor if the terminal allows it, or of a
/// program.
static std::unique_ptr<LineInput>
openInput(bool isInteractive, const Screen &screen, uint64_t mostBytes) {
  if (isInteractive && screen.hasCursor && LineEditor::isPossible())
    return std::make_unique<LineEditor>(openHistory());
  return std::make_unique<PlainInput>(mostBytes, isInteractive);
}

static void chat(const ChatCommand &command) {
  std::string chatTemplate = readTemplate(command.chatTemplate);
  Model model(command.file.path(), std::move(chatTemplate));
  const Manifest &manifest = model.manifest();
  manifest.model.output.requireLogits(model.path());
  // Each throws if there is none.
  (void)model.tokenizer();
  (void)model.chatFormat();
  const std::shared_ptr<MemoryBudget> budget = command.budget();
  std::unique_ptr<DiskStore> store;
  if (!command.cacheFolder.empty())
    store = std::make_unique<DiskStore>(
        command.cacheFolder, command.cacheBytes, *budget,
        [](const std::string &line) { writeError(line + "\n"); });
  EngineOptions options = command.options(model);
  options.isStored = store != nullptr;
  const std::unique_ptr<Engine> engine = command.start(model, options, budget);
  RootTable roots;

  TalkOptions talk = {.count = command.count,
                      .sampling = command.sampling.apply(manifest.generation),
                      .thinking = command.thinking,
                      .tools = readTools(command.tools),
                      .store = store.get(),
                      .root = roots.intern({.artifact = model.identity()}),
                      .allowSpecial = command.allowSpecial,
                      .isInteractive =
                          isTerminal(STDIN_FILENO) && isTerminal(STDERR_FILENO),
                      .output = screenOf(STDOUT_FILENO, command.color),
                      .notes = screenOf(STDERR_FILENO, command.color)};
  const std::unique_ptr<LineInput> input =
      openInput(talk.isInteractive, talk.notes,
                model.tokenizer().mostBytes(manifest.model.context));
  catchInterrupts();
  const int64_t refused = Talk(model, *engine, *input, talk).run();
  finishCheck(model, *engine);
  // The status tells a script what it cannot see on standard error.
  if (refused && !isTerminal(STDIN_FILENO))
    throw Error(std::to_string(refused) + " of the lines got no answer");
}

void qwen::run::addChat(const Command &program) {
  const auto command = std::make_shared<ChatCommand>();
  const Command sub = program.addCommand(
      "chat", "Chat with the model; on a terminal, /help lists the commands");
  addFile(sub, command->file);
  sub.group("Conversation");
  sub.addNumber(
      "-n,--count", command->count,
      "Maximum tokens of an answer; default is the rest of the context", 0,
      kMost);
  sub.addFlag(
      "--think,!--no-think",
      [command](bool thinking) { command->thinking = thinking; },
      "Set enable_thinking of the chat template to true or false; default is "
      "the template's choice");
  sub.addText("--chat-template", command->chatTemplate,
              "Chat template (Jinja); default is the model's")
      .type("FILE");
  sub.addText("--tools", command->tools,
              "Tools that the model may call, a JSON array of OpenAI's "
              "form; calls are shown and do not run; default is none")
      .type("FILE");
  sub.addText("--cache-dir", command->cacheFolder,
              "Folder that keeps the prompts of chats, and of a server without "
              "API keys, from one start to the next; default is none")
      .type("DIR");
  sub.addSize("--cache-disk", command->cacheBytes,
              "Maximum size of the files of --cache-dir");
  sub.addFlag("--allow-special", command->allowSpecial,
              "Read special tokens in the text of messages");
  sub.addChoice("--color", command->color, {"auto", "always", "never"},
                "Show reasoning in dim letters: on a terminal without NO_COLOR "
                "(auto), always or never");
  addSampling(sub, command->sampling);
  addRun(sub, *command, {EnginePart::Snapshots, EnginePart::Answers});
  sub.onRun([command] { chat(*command); });
}
