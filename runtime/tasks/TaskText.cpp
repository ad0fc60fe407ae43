//===- TaskText.cpp - Texts and files of tasks ----------------------------===//

#include "tasks/TaskText.h"

#include "jinja/JinjaBuiltins.h"

#include "qwen/Support/Text.h"

#include <charconv>

using namespace qwen;
using namespace qwen::tasks;

std::string_view qwen::tasks::strip(std::string_view text) {
  return jinja::strip(text, nullptr, true, true);
}

std::string_view qwen::tasks::stripEnd(std::string_view text) {
  return jinja::strip(text, nullptr, false, true);
}

std::string qwen::tasks::capitalize(std::string_view text) {
  const size_t first = text.empty() ? 0 : decodeUtf8(text).length;
  return jinja::toUpper(text.substr(0, first)) +
         jinja::toLower(text.substr(first));
}

std::string qwen::tasks::replaceAll(std::string_view text,
                                    std::string_view from,
                                    std::string_view to) {
  std::string result;
  size_t begin = 0;
  for (size_t at; (at = text.find(from, begin)) != std::string_view::npos;
       begin = at + from.size())
    result.append(text, begin, at - begin).append(to);
  return result.append(text, begin);
}

Document qwen::tasks::multipleChoice(const std::string &context,
                                     std::vector<std::string> choices,
                                     size_t gold) {
  Document document = {{}, std::move(choices), gold};
  for (const std::string &choice : document.choices)
    document.queries.push_back({context, kDelimiter + choice});
  document.example =
      context + kDelimiter + document.choices[gold] + kExampleEnd;
  return document;
}

int64_t qwen::tasks::integerOf(const JsonValue &value, int64_t least,
                               int64_t most) {
  if (!value.isOfKind(""))
    return value.integer(least, most);
  const std::string &text = value.string();
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() ||
      number < least || number > most)
    value.fail("an integer from " + std::to_string(least) + " to " +
               std::to_string(most));
  return number;
}

DataFile qwen::tasks::firstFile(const DataFolder &folder,
                                const std::vector<std::string> &names,
                                const std::string &task) {
  std::string list;
  for (const std::string &name : names) {
    if (std::optional<DataFile> file = folder.read(name))
      return std::move(*file);
    list += (list.empty() ? "" : ", ") + name;
  }
  const std::string parquet = folder.parquetFile();
  throw Error(part::file(folder.path()) + " has no data of " +
              part::subject(task) + ": it needs " + part::needed(list) +
              (parquet.empty()
                   ? ""
                   : "; convert " + parquet +
                         " to JSON lines with pandas: read_parquet(...)"
                         ".to_json(..., orient=\"records\", lines=True)"));
}

std::vector<Document> qwen::tasks::documentsOf(
    const Records &records,
    const std::function<Document(const JsonValue &row)> &read) {
  std::vector<Document> documents;
  documents.reserve(records.size());
  for (size_t i = 0; i < records.size(); ++i)
    documents.push_back(read(records[i]));
  return documents;
}
