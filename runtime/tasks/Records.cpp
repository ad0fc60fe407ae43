//===- Records.cpp - Rows of data files -----------------------------------===//

#include "tasks/Records.h"

#include "text/Unicode.h"

using namespace qwen;
using namespace qwen::tasks;
using nlohmann::json;

//===----------------------------------------------------------------------===//
// CSV
//===----------------------------------------------------------------------===//

namespace {
/// Reads a CSV text field by field.
class CsvReader {
public:
  CsvReader(std::string_view text, const std::string &where)
      : text(text), where(where) {}

  bool isAtEnd() const { return next == text.size(); }
  /// The fields of the next line.
  std::vector<std::string> line() {
    std::vector<std::string> fields;
    do {
      fields.push_back(text.substr(next).starts_with('"') ? quoted() : plain());
    } while (take(","));
    if (!isAtEnd() && !take("\r\n") && !take("\n"))
      throw Error(part::file(where) + " line " + std::to_string(number()) +
                  ": a quoted field goes on after its quote");
    return fields;
  }

private:
  bool take(std::string_view mark) {
    const bool isNext = text.substr(next).starts_with(mark);
    next += isNext ? mark.size() : 0;
    return isNext;
  }
  std::string plain() {
    const size_t end = std::min(text.find_first_of(",\n", next), text.size());
    std::string field(text.substr(next, end - next));
    next = end;
    if (field.ends_with('\r') && (isAtEnd() || text[next] == '\n'))
      field.pop_back();
    return field;
  }
  std::string quoted() {
    const size_t first = number();
    std::string field;
    ++next;
    while (true) {
      const size_t quote = text.find('"', next);
      if (quote == std::string_view::npos)
        throw Error(part::file(where) + " line " + std::to_string(first) +
                    ": a quoted field has no end");
      field += text.substr(next, quote - next);
      next = quote + 1;
      if (!take("\""))
        return field;
      field += '"';
    }
  }
  /// The number of the present line in the file.
  size_t number() const {
    return 1 +
           static_cast<size_t>(std::ranges::count(text.substr(0, next), '\n'));
  }

  const std::string_view text;
  const std::string &where;
  size_t next = 0;
};
} // namespace

std::vector<std::vector<std::string>>
qwen::tasks::parseCsv(std::string_view text, const std::string &where) {
  std::vector<std::vector<std::string>> lines;
  for (CsvReader reader(text, where); !reader.isAtEnd();) {
    std::vector<std::string> fields = reader.line();
    if (fields.size() > 1 || !fields.front().empty())
      lines.push_back(std::move(fields));
  }
  return lines;
}

//===----------------------------------------------------------------------===//
// Records
//===----------------------------------------------------------------------===//

Records::Records(const DataFile &file,
                 const std::vector<std::string> &columns) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  DataFile text = file;
  if (text.bytes.starts_with(kMark))
    text.bytes.erase(0, kMark.size());
  if (!isValidUtf8(text.bytes))
    throw Error(part::file(file.where) + " is not UTF-8");
  const size_t first = text.bytes.find_first_not_of(" \t\r\n");
  if (first == std::string::npos)
    throw Error(part::file(file.where) + " is empty");
  if (text.bytes[first] == '{')
    addLines(text);
  else if (text.bytes[first] == '[')
    addArray(text);
  else
    addCsv(text, columns);
}

void Records::add(json value, const std::string &where) {
  rows.push_back({std::move(value), JsonSource::ofFile(where)});
}

void Records::addLines(const DataFile &file) {
  const std::string_view text = file.bytes;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    ++number;
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    const std::string where = file.where + " line " + std::to_string(number);
    add(parseJsonObject<json>(line, part::file(where)), where);
  }
}

void Records::addArray(const DataFile &file) {
  checkJson(file.bytes, part::file(file.where), {});
  json elements = json::parse(file.bytes);
  for (size_t i = 0; i < elements.size(); ++i)
    add(std::move(elements[i]), file.where + " element " + std::to_string(i));
}

void Records::addCsv(const DataFile &file, std::vector<std::string> columns) {
  size_t number = 0;
  for (const std::vector<std::string> &fields :
       parseCsv(file.bytes, file.where)) {
    if (columns.empty()) {
      columns = fields;
      continue;
    }
    const std::string where = file.where + " row " + std::to_string(++number);
    if (fields.size() != columns.size())
      throw Error(part::file(where) + " has " + part::found(fields.size()) +
                  " fields when " + part::needed(columns.size()) +
                  " are needed");
    json value;
    for (size_t i = 0; i < columns.size(); ++i)
      value[columns[i]] = fields[i];
    add(std::move(value), where);
  }
}
