//===- TextEditor.h - The user's own editor ---------------------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_TEXTEDITOR_H
#define QWEN_RUN_CHAT_TEXTEDITOR_H

#include <cstdint>
#include <string>

namespace qwen::run {

/// Lets the user change `text` in $VISUAL, else $EDITOR, else vi, and returns
/// it with \n for CRLF and without a newline at its end. The variable is a
/// program and its arguments with spaces between them; no shell runs. The text
/// lies in a temporary folder that only this user can read. Throws Error, also
/// if the editor fails or the text has more than `mostBytes`.
std::string editText(const std::string &text, uint64_t mostBytes);

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_TEXTEDITOR_H
