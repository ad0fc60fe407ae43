//===- WikiText.cpp - WikiText-2: perplexity of articles ------------------===//
//
// Merity et al., "Pointer Sentinel Mixture Models", 2016. The model scores each
// page as plain text; perplexities are of the words and bytes of the original
// page.
//
//===----------------------------------------------------------------------===//

#include "tasks/TaskText.h"
#include "text/Unicode.h"

#include <algorithm>
#include <array>

using namespace qwen;
using namespace qwen::tasks;

/// `text` with "/'[0-9]/" in place of "/' 5/" and the like, as lm-eval does:
/// its pattern was meant for sed, so its slashes are part of it.
static std::string replaceSlashes(const std::string &text) {
  std::string result;
  size_t begin = 0;
  for (size_t at; (at = text.find("/' ", begin)) != std::string::npos;) {
    const bool isMatch = at + 4 < text.size() && text[at + 3] >= '0' &&
                         text[at + 3] <= '9' && text[at + 4] == '/';
    const size_t end = at + (isMatch ? 5 : 1);
    result.append(text, begin, at - begin);
    result += isMatch ? "/'[0-9]/" : "/";
    begin = end;
  }
  return result.append(text, begin);
}

/// `text` without white space behind each `open` and before the `close` that
/// follows.
static std::string trimInside(const std::string &text, char open, char close) {
  std::string result;
  size_t begin = 0;
  for (size_t at; (at = text.find(open, begin)) != std::string::npos;) {
    const size_t end = text.find(close, at + 1);
    if (end == std::string::npos)
      break;
    result.append(text, begin, at + 1 - begin);
    result += strip(std::string_view(text).substr(at + 1, end - at - 1));
    result += close;
    begin = end + 1;
  }
  return result.append(text, begin);
}

/// A page as plain text: WikiText has spaces around each word and mark.
static std::string plainText(const std::string &page) {
  static constexpr std::array<std::array<const char *, 2>, 9> kMarks = {
      {{" @-@ ", "-"},
       {" @,@ ", ","},
       {" @.@ ", "."},
       {" : ", ": "},
       {" ; ", "; "},
       {" . ", ". "},
       {" ! ", "! "},
       {" ? ", "? "},
       {" , ", ", "}}};
  static constexpr std::array<std::array<char, 2>, 5> kPairs = {
      {{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}}};
  static constexpr std::array<std::array<const char *, 2>, 8> kRest = {
      {{"= = = =", "===="},
       {"= = =", "==="},
       {"= =", "=="},
       {" \u00b0 ", "\u00b0"},
       {" \n", "\n"},
       {"\n ", "\n"},
       {" N ", " 1 "},
       {" 's", "'s"}}};
  std::string text = replaceSlashes(replaceAll(page, "s '", "s'"));
  for (const auto &[from, to] : kMarks)
    text = replaceAll(text, from, to);
  for (const auto &[open, close] : kPairs)
    text = trimInside(text, open, close);
  for (const auto &[from, to] : kRest)
    text = replaceAll(text, from, to);
  return text;
}

/// Number of the parts between runs of white space, empty ones at the ends too.
static uint64_t countWords(std::string_view page) {
  uint64_t count = 1;
  bool wasSpace = false;
  while (!page.empty()) {
    const std::string_view character = page.substr(0, decodeUtf8(page).length);
    const bool isSpace = strip(character).empty();
    count += isSpace && !wasSpace;
    wasSpace = isSpace;
    page.remove_prefix(character.size());
  }
  return count;
}

static Document makePage(const std::string &page) {
  Document document = {{{"", plainText(page)}}};
  document.words = countWords(page);
  document.bytes = page.size();
  return document;
}

/// Whether a page begins with this line: " = Title = ".
static bool isTitle(std::string_view line) {
  const std::string joined =
      replaceAll(replaceAll(line, "= = =", "==="), "= =", "==");
  const std::string_view title = strip(joined);
  return title.starts_with("= ") && title.ends_with(" =");
}

/// The pages of the file as published.
static std::vector<Document> readPages(const DataFile &file) {
  if (!isValidUtf8(file.bytes))
    throw Error(part::file(file.where) + " is not UTF-8");
  const std::string text =
      replaceAll(replaceAll(file.bytes, "\r\n", "\n"), "\r", "\n");
  std::vector<Document> pages;
  std::string page;
  bool isFirst = true;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line =
        std::string_view(text).substr(begin, end - begin);
    if (isTitle(line)) {
      if (!strip(page).empty())
        pages.push_back(makePage(page));
      page.clear();
      isFirst = true;
    }
    page.append(isFirst ? "" : "\n").append(line);
    isFirst = false;
    begin = end + 1;
  }
  pages.push_back(makePage(page));
  return pages;
}

static TaskData readWikiText(const DataFolder &folder, bool) {
  const DataFile file = firstFile(
      folder,
      {"wiki.test.raw", "wikitext-2-raw/wiki.test.raw", "wikitext/test.jsonl"},
      "wikitext");
  if (file.where.ends_with(".jsonl"))
    return {documentsOf(Records(file), [](const JsonValue &row) {
      return makePage(row.at("page").string());
    })};
  TaskData data = {readPages(file)};
  if (file.bytes.find("\n \n") == std::string::npos)
    data.note = file.where +
                " lacks the empty lines of the published file: perplexities of "
                "bytes differ from those of it";
  return data;
}

TaskFamily qwen::tasks::makeWikiText() {
  Task task = {"wikitext", "wikitext", 2};
  task.metrics = {&metric::word_perplexity, &metric::byte_perplexity,
                  &metric::bits_per_byte};
  task.examples = Examples::None;
  task.isRolling = true;
  task.read = readWikiText;
  return {{task}};
}
