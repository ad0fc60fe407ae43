//===- Output.h - Standard streams, files, figures --------------*- C++ -*-===//
//
// Input and output of the commands of qwen-run, except the model.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_OUTPUT_H
#define QWEN_RUN_OUTPUT_H

#include "qwen/Support/TemporaryFile.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen::run {

/// Writes all of `text` to standard output. Throws Error.
void writeOut(std::string_view text);

/// The same for the text of a model, which is not to be trusted: on a terminal,
/// control characters become escapes (screenText).
void writeAnswer(std::string_view text);

/// Writes to standard error; failures are ignored.
void writeError(std::string_view text);

/// Lines of a stream that may be a pipe or a terminal. It never waits: a line
/// for which there is no room is dropped, and the next one says how many were.
/// One thread uses it. SIGPIPE must be ignored.
class LogLines {
public:
  explicit LogLines(int streamDescriptor) : descriptor(streamDescriptor) {}

  /// Writes a line without its end, at most PIPE_BUF bytes of it.
  void write(std::string_view line);

private:
  const int descriptor;
  uint64_t dropped = 0;
};

bool isTerminal(int descriptor);

/// All of standard input. Throws Error; an error about more than `most` bytes
/// ends with `why`, the reason for the limit.
std::string readInput(uint64_t most, const std::string &why);

/// All of a file of any kind, with the same errors.
std::string readFile(const std::string &path, uint64_t most,
                     const std::string &why);

/// Like readFile, for a document of the user, which this process may write
/// again (/load and /save): it is no input that no output may replace.
std::string readDocument(const std::string &path, uint64_t most,
                         const std::string &why);

/// A file that gets its final name when it is complete (TemporaryFile), or a
/// pipe or a device, which is written directly. All members throw Error.
class OutputFile {
public:
  explicit OutputFile(const std::string &path);
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  void write(const void *data, size_t size);
  /// Gives the file its name.
  void commit();

private:
  [[noreturn]] void fail(int error) const;

  OutputTarget target;
  std::optional<TemporaryFile> temporary;
  int stream;
};

/// The header of NumPy's format 1.0 for f32 [rows, columns], C order.
std::string npyHeader(size_t rows, int64_t columns);

/// Ids separated by commas, spaces or newlines, or JSON: an array of ids or an
/// object with the array "ids". `what` names the text in errors.
std::vector<int32_t> parseIds(std::string_view text, const char *what);

/// Seconds since `start`.
double secondsSince(std::chrono::steady_clock::time_point start);

/// The value of a line of /proc/self/status ("VmHWM", "VmSize") in bytes; 0 if
/// the line is missing.
uint64_t processBytes(std::string_view key);

} // namespace qwen::run

#endif // QWEN_RUN_OUTPUT_H
