//===- Tokenize.cpp - Text to token ids, or back --------------------------===//

#include "Commands.h"
#include "Options.h"
#include "Output.h"

#include <nlohmann/json.hpp>

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

/// {"text": ...}, with U+FFFD for bytes that are not UTF-8.
static std::string textObject(const std::string &bytes) {
  Utf8Stream characters;
  std::string text = characters.push(bytes);
  text += characters.finish();
  return nlohmann::json({{"text", text}}).dump() + "\n";
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
    writeAnswer(command.json ? textObject(bytes) : bytes);
    return;
  }
  const std::vector<int32_t> ids = tokenizer.encode(text);
  if (command.json) {
    writeOut(nlohmann::json({{"ids", ids}}).dump() + "\n");
    return;
  }
  std::string line;
  for (int32_t id : ids)
    line += (line.empty() ? "" : ",") + std::to_string(id);
  writeOut(line + "\n");
}

void qwen::run::addTokenize(CLI::App &app) {
  const auto command = std::make_shared<TokenizeCommand>();
  CLI::App *sub = app.add_subcommand(
      "tokenize", "Convert text to token ids, or ids to text");
  addFile(sub, command->file);
  sub->add_option("-p,--prompt", command->text,
                  "Text (ids with --decode); default is standard input");
  sub->add_flag("--json", command->json,
                "Print {\"ids\": [...]}, or with --decode {\"text\": ...}; "
                "U+FFFD replaces bytes that are not UTF-8");
  sub->add_flag("--decode", command->decode, "Convert ids to text");
  sub->callback([command] { tokenize(*command); });
}
