//===- Screen.cpp - Text on terminals -------------------------------------===//

#include "chat/Screen.h"

#include "Output.h"
#include "text/Unicode.h"

#include <algorithm>
#include <cstdlib>
#include <sys/ioctl.h>

using namespace qwen;
using namespace qwen::run;

std::string qwen::run::screenText(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find_first_of("\n\t", i), text.size());
    result += printable(text.substr(i, end - i));
    if (end < text.size())
      result += text[end];
    i = end + 1;
  }
  return result;
}

size_t qwen::run::lineColumns(std::string_view line) {
  size_t columns = 0;
  for (size_t i = 0; i < line.size();) {
    const DecodedChar c = decodeUtf8(line.substr(i));
    columns += columnsOf(c.codePoint);
    i += c.length;
  }
  return columns;
}

namespace {
/// Writes words into lines.
class Wrapper {
public:
  Wrapper(size_t width, size_t indent)
      : width(width), indent(std::min(indent, width - 2)) {}

  void newLine() {
    text += '\n';
    column = 0;
    isIndented = false;
  }
  void addWord(std::string_view word) {
    const size_t columns = lineColumns(word);
    const bool isFirst = column == start();
    if (!isFirst && column + 1 + columns > width)
      breakLine();
    else if (!isFirst)
      put(" ", 1);
    for (size_t i = 0; i < word.size();) {
      const DecodedChar c = decodeUtf8(word.substr(i));
      const size_t wide = columnsOf(c.codePoint);
      if (column + wide > width)
        breakLine();
      put(word.substr(i, c.length), wide);
      i += c.length;
    }
  }
  std::string take() { return std::move(text); }

private:
  /// The column of the first word of this line.
  size_t start() const { return isIndented ? indent : 0; }
  void put(std::string_view piece, size_t columns) {
    text += piece;
    column += columns;
  }
  void breakLine() {
    text += '\n';
    text.append(indent, ' ');
    column = indent;
    isIndented = true;
  }

  const size_t width, indent;
  std::string text;
  size_t column = 0;
  bool isIndented = false;
};
} // namespace

std::string qwen::run::wrapped(std::string_view text, size_t width,
                               size_t indent) {
  Wrapper lines(width, indent);
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", i), text.size());
    if (end > i)
      lines.addWord(text.substr(i, end - i));
    if (end < text.size() && text[end] == '\n')
      lines.newLine();
    i = end + 1;
  }
  return lines.take();
}

//===----------------------------------------------------------------------===//
// Terminals
//===----------------------------------------------------------------------===//

std::string Screen::dim(const std::string &text) const {
  return hasColor ? "\x1b[2m" + text + "\x1b[22m" : text;
}

/// A variable of the environment; empty if it is not set.
static std::string_view variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

Screen qwen::run::screenOf(int descriptor, ColorMode mode) {
  const std::string_view term = variable("TERM");
  Screen screen;
  screen.isTerminal = isTerminal(descriptor);
  screen.hasCursor = screen.isTerminal && !term.empty() && term != "dumb";
  screen.hasColor = mode == ColorMode::Always ||
                    (mode == ColorMode::Auto && screen.isTerminal &&
                     variable("NO_COLOR").empty() && term != "dumb");
  return screen;
}

size_t qwen::run::screenWidth(int descriptor) {
  struct winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return 80;
  return std::max<size_t>(size.ws_col, 2);
}
