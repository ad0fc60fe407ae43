//===- Records.h - Rows of data files ---------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TASKS_RECORDS_H
#define QWEN_RUNTIME_TASKS_RECORDS_H

#include "tasks/DataFolder.h"

#include "qwen/Support/JsonValue.h"

#include <string_view>
#include <vector>

namespace qwen::tasks {

/// The fields of each line of a CSV text (RFC 4180): fields may be quoted, a
/// quoted field may have commas and newlines, and two quotes in it are one.
/// Lines end with LF or CRLF; empty lines are skipped. `where` begins errors.
std::vector<std::vector<std::string>> parseCsv(std::string_view text,
                                               const std::string &where);

/// The rows of a file as JSON objects: the lines of JSON Lines, the elements of
/// a JSON array, or the lines of CSV by the names of its columns. The first
/// characters of a file tell its form.
class Records {
public:
  /// CSV has its columns' names in its first line unless `columns` gives them.
  /// Throws Error, which names the file and the line.
  explicit Records(const DataFile &file,
                   const std::vector<std::string> &columns = {});

  size_t size() const { return rows.size(); }
  JsonValue operator[](size_t index) const {
    return {rows[index].value, rows[index].source};
  }

private:
  struct Row {
    nlohmann::json value;
    JsonSource source;
  };
  void add(nlohmann::json value, const std::string &where);
  void addLines(const DataFile &file);
  void addArray(const DataFile &file);
  void addCsv(const DataFile &file, std::vector<std::string> columns);

  std::vector<Row> rows;
};

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_RECORDS_H
