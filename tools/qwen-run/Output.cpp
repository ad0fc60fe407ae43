//===- Output.cpp - Standard streams, files, figures ----------------------===//

#include "Output.h"

#include "chat/Screen.h"

#include "qwen/Support/InputError.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <unistd.h>
#include <utility>

using namespace qwen;
using namespace qwen::run;

void qwen::run::writeOut(std::string_view text) {
  if (const int error = writeAll(STDOUT_FILENO, text.data(), text.size()))
    throw Error(std::string("cannot write to standard output: ") +
                strerror(error));
}

void qwen::run::writeError(std::string_view text) {
  (void)writeAll(STDERR_FILENO, text.data(), text.size());
}

void qwen::run::writeAnswer(std::string_view text) {
  writeOut(isTerminal(STDOUT_FILENO) ? screenText(text) : std::string(text));
}

void LogLines::write(std::string_view line) {
  std::string text;
  if (dropped)
    text = "qwen-run: " + std::to_string(dropped) +
           " lines of the log were dropped, which nobody read\n";
  text += line.substr(0, PIPE_BUF - 1 - text.size());
  text += '\n';
  pollfd stream{descriptor, POLLOUT, 0};
  if (poll(&stream, 1, 0) == 1 &&
      ::write(descriptor, text.data(), text.size()) > 0)
    dropped = 0;
  else
    ++dropped;
}

bool qwen::run::isTerminal(int descriptor) { return isatty(descriptor); }

static std::string readAll(int fd, const std::string &name, uint64_t most,
                           const std::string &why) {
  const auto refuse = [&] {
    throw Error(name + " has more than " + std::to_string(most) +
                " bytes: " + why);
  };
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      throw Error("cannot read " + name + ": " + strerror(errno));
    if (got == 0)
      return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > most)
      refuse();
  }
}

std::string qwen::run::readInput(uint64_t most, const std::string &why) {
  noteInput("/dev/stdin");
  return readAll(STDIN_FILENO, "standard input", most, why);
}

std::string qwen::run::readFile(const std::string &path, uint64_t most,
                                const std::string &why) try {
  noteInput(path);
  return readDocument(path, most, why);
} catch (...) {
  throwInputError();
}

std::string qwen::run::readDocument(const std::string &path, uint64_t most,
                                    const std::string &why) try {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw Error("cannot read " + path + ": " + strerror(errno));
  try {
    std::string text = readAll(fd, path, most, why);
    close(fd);
    return text;
  } catch (...) {
    close(fd);
    throw;
  }
} catch (...) {
  throwInputError();
}

//===----------------------------------------------------------------------===//
// OutputFile
//===----------------------------------------------------------------------===//

OutputFile::OutputFile(const std::string &path)
    : target(path), stream(target.openStream()) {
  if (stream < 0)
    temporary.emplace(path);
}

OutputFile::~OutputFile() {
  if (stream >= 0)
    close(stream);
}

void OutputFile::fail(int error) const {
  throw Error("cannot write '" + target.path() + "': " + strerror(error));
}

void OutputFile::write(const void *data, size_t size) {
  const int fd = temporary ? temporary->descriptor() : stream;
  if (const int error = writeAll(fd, data, size))
    fail(error);
}

void OutputFile::commit() {
  if (temporary)
    temporary->commit();
  else if (close(std::exchange(stream, -1)) != 0)
    fail(errno);
}

//===----------------------------------------------------------------------===//
// Ids and figures
//===----------------------------------------------------------------------===//

static std::vector<int32_t> parseJsonIds(std::string_view text,
                                         const char *what) {
  using nlohmann::json;
  const json whole = json::parse(text, nullptr, false);
  // A reference, because copying recurses once per level of nesting.
  const json &value =
      whole.is_object() && whole.contains("ids") ? whole["ids"] : whole;
  std::vector<int32_t> ids;
  bool good = value.is_array();
  for (size_t i = 0; good && i < value.size(); ++i) {
    good =
        value[i].is_number_unsigned() && value[i].get<uint64_t>() < INT32_MAX;
    if (good)
      ids.push_back(value[i].get<int32_t>());
  }
  if (!good)
    throw Error(std::string(what) + " is not a list of token ids");
  return ids;
}

std::vector<int32_t> qwen::run::parseIds(std::string_view text,
                                         const char *what) {
  constexpr std::string_view kBetween = ", \t\r\n";
  const size_t first = text.find_first_not_of(kBetween);
  if (first != std::string_view::npos &&
      (text[first] == '{' || text[first] == '['))
    return parseJsonIds(text, what);
  std::vector<int32_t> ids;
  for (size_t at = first; at < text.size();
       at = text.find_first_not_of(kBetween, at)) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    int32_t id = -1;
    const auto [last, error] =
        std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || last != text.data() + end || id < 0)
      throw Error(std::string(what) + " has \"" +
                  std::string(text.substr(at, std::min<size_t>(end - at, 40))) +
                  "\" where a token id is needed");
    ids.push_back(id);
    at = end;
  }
  return ids;
}

double qwen::run::secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

uint64_t qwen::run::processBytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with(key) && line.size() > key.size() &&
        line[key.size()] == ':')
      return strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

std::string qwen::run::npyHeader(size_t rows, int64_t columns) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(rows) + ", " + std::to_string(columns) +
                       "), }";
  constexpr size_t kAlign = 64, kBefore = 10;
  header.append(kAlign - (kBefore + header.size() + 1) % kAlign, ' ');
  header += '\n';
  const char before[kBefore] = {'\x93',
                                'N',
                                'U',
                                'M',
                                'P',
                                'Y',
                                1,
                                0,
                                static_cast<char>(header.size() & 0xFF),
                                static_cast<char>(header.size() >> 8)};
  return std::string(before, kBefore) + header;
}
