//===- Model.cpp - A compiled model, opened -------------------------------===//

#include "model/Model.h"

#include <cstdio>
#include <utility>

using namespace qwen;

Model::Model(const std::string &path, std::string chatTemplate)
    : file(path), ownTemplate(std::move(chatTemplate)) {
  if (file.tokenizer().empty())
    return;
  textTokenizer = Tokenizer::fromBlob(file.tokenizer());
  answers.emplace(*textTokenizer, this->chatTemplate());
}

std::string Model::identity() const {
  char checksum[20];
  snprintf(checksum, sizeof(checksum), "%016llx",
           static_cast<unsigned long long>(file.header().headerChecksum));
  return info().name + " " + checksum + " " +
         file.selectTarget(hostArch(), hostFeatures()).name;
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
