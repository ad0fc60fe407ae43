//===- Error.cpp - The exception of this project --------------------------===//

#include "qwen/Support/Error.h"

#include "qwen/Support/Text.h"

using namespace qwen;

/// `text` on one line, cut after 4,000 bytes.
static std::string oneLine(const std::string &text) {
  constexpr size_t kMost = 4000;
  return printable(text.substr(0, kMost)) + (text.size() > kMost ? "..." : "");
}

ErrorText qwen::operator+(ErrorText left, const ErrorText &right) {
  left.text += right.text;
  for (auto field : {&ErrorFields::file, &ErrorFields::subject,
                     &ErrorFields::found, &ErrorFields::needed})
    if (left.parts.*field == "")
      left.parts.*field = right.parts.*field;
  return left;
}

ErrorText part::file(const std::string &path) {
  return {path, ErrorFields{.file = path}};
}
ErrorText part::tensor(const std::string &name) {
  return {"tensor " + quote(name), ErrorFields{.subject = name}};
}
ErrorText part::subject(const std::string &text) {
  return {text, ErrorFields{.subject = text}};
}
ErrorText part::found(const std::string &text) {
  return {text, ErrorFields{.found = text}};
}
ErrorText part::needed(const std::string &text) {
  return {text, ErrorFields{.needed = text}};
}

Error::Error(const ErrorText &text, ErrorKind kind)
    : std::runtime_error(oneLine(text.line())), errorKind(kind),
      errorFields(std::make_shared<ErrorFields>(ErrorFields{
          oneLine(text.fields().file), oneLine(text.fields().subject),
          oneLine(text.fields().found), oneLine(text.fields().needed)})) {}
