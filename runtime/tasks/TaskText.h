//===- TaskText.h - Texts and files of tasks --------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TASKS_TASKTEXT_H
#define QWEN_RUNTIME_TASKS_TASKTEXT_H

#include "tasks/Records.h"
#include "tasks/Task.h"

#include <string>
#include <string_view>
#include <vector>

namespace qwen::tasks {

/// Between a context and a continuation, and after an example.
inline constexpr const char *kDelimiter = " ";
inline constexpr const char *kExampleEnd = "\n\n";

/// Python's str.strip(), str.rstrip() and str.capitalize().
std::string_view strip(std::string_view text);
std::string_view stripEnd(std::string_view text);
std::string capitalize(std::string_view text);

/// `text` with `to` in place of each `from`, as Python's str.replace.
std::string replaceAll(std::string_view text, std::string_view from,
                       std::string_view to);

/// A document with one context and a continuation for each choice.
Document multipleChoice(const std::string &context,
                        std::vector<std::string> choices, size_t gold);

/// The integer of a value that may be a number or a string of one.
int64_t integerOf(const JsonValue &value, int64_t least, int64_t most);

/// The first of the files that is there. Throws Error, which names all, for
/// `task` if none is.
DataFile firstFile(const DataFolder &folder,
                   const std::vector<std::string> &names,
                   const std::string &task);

/// A document of each row.
std::vector<Document>
documentsOf(const Records &records,
            const std::function<Document(const JsonValue &row)> &read);

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_TASKTEXT_H
