//===- Tokenize.cpp - Text to token ids, or back --------------------------===//

#include "Commands.h"
#include "Output.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using namespace qwen::run;

void qwen::run::tokenize(const TokenizeCommand &command) {
  const Artifact artifact(command.file);
  const Tokenizer tokenizer = openTokenizer(artifact);
  const std::string text =
      command.text ? *command.text
                   : readInput(Tokenizer::kMaxTextBytes, kLongestText);
  if (command.decode) {
    const std::vector<int32_t> ids = parseIds(text, "the input");
    writeOut(tokenizer.decode(ids));
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
