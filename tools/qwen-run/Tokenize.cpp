//===- Tokenize.cpp - Text to token ids, or back --------------------------===//

#include "Commands.h"
#include "JsonOutput.h"
#include "Options.h"
#include "Output.h"

using namespace qwen;
using namespace qwen::run;

namespace {
struct TokenizeCommand {
  ModelFile file;
  std::optional<std::string> text;
  bool json = false;
  bool decode = false;
};
} // namespace

/// `bytes` with U+FFFD for those that are not UTF-8.
static std::string validText(const std::string &bytes) {
  Utf8Stream characters;
  std::string text = characters.push(bytes);
  text += characters.finish();
  return text;
}

static void tokenize(const TokenizeCommand &command) {
  const Model model(command.file.path());
  const Tokenizer &tokenizer = model.tokenizer();
  const std::string text =
      command.text ? *command.text
                   : readInput(Tokenizer::kMaxTextBytes, kLongestText);
  if (command.decode) {
    const std::vector<int32_t> ids = parseIds(text, "the input");
    const std::string bytes = tokenizer.decode(ids);
    if (command.json)
      writeObject({{"text", validText(bytes)}});
    else
      writeAnswer(bytes);
    return;
  }
  const std::vector<int32_t> ids = tokenizer.encode(text);
  if (command.json) {
    writeObject({{"ids", ids}});
    return;
  }
  std::string line;
  for (int32_t id : ids)
    line += (line.empty() ? "" : ",") + std::to_string(id);
  writeOut(line + "\n");
}

void qwen::run::addTokenize(const Command &program) {
  const auto command = std::make_shared<TokenizeCommand>();
  const Command sub = program.addCommand(
      "tokenize", "Convert text to token ids, or ids to text");
  addFile(sub, command->file);
  sub.addText("-p,--prompt", command->text,
              "Text (ids with --decode); default is standard input");
  sub.addFlag("--json", command->json,
              "Print {\"ids\": [...]}, or with --decode {\"text\": ...}; "
              "U+FFFD replaces bytes that are not UTF-8");
  sub.addFlag("--decode", command->decode, "Convert ids to text");
  sub.onRun([command] { tokenize(*command); });
}
