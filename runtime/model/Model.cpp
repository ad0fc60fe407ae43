//===- Model.cpp - A compiled model, opened -------------------------------===//

#include "model/Model.h"

#include <utility>

using namespace qwen;

Model::Model(const std::string &path, std::string chatTemplate)
    : file(path), ownTemplate(std::move(chatTemplate)) {
  if (file.tokenizer().empty())
    return;
  textTokenizer = Tokenizer::fromBlob(file.tokenizer());
  answers.emplace(*textTokenizer, this->chatTemplate());
}

const Tokenizer &Model::tokenizer() const {
  if (!textTokenizer)
    throw Error(path() + " has no tokenizer, because its checkpoint had none: "
                         "only token ids work");
  return *textTokenizer;
}

const ChatFormat &Model::chatFormat() const {
  if (!hasChatFormat())
    throw Error(path() + " has no chat template, because its checkpoint had "
                         "none: only plain prompts work");
  std::call_once(formatMade,
                 [&] { format.emplace(chatTemplate(), tokenizer()); });
  return *format;
}
