//===- Output.h - Standard streams, files, figures --------------*- C++ -*-===//
//
// Input and output of the commands of qwen-run, except the model.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_OUTPUT_H
#define QWEN_RUN_OUTPUT_H

#include "qwen/ABI/TemporaryFile.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen::run {

/// Writes all of `text` to standard output. Throws Error.
void writeOut(std::string_view text);

/// Writes to standard error; failures are ignored.
void writeError(std::string_view text);

bool isTerminal(int descriptor);

/// The number of threads for the option -t `threads`: at most usableThreads,
/// with a line on standard error if that is fewer. 0 stays 0.
int32_t limitThreads(int32_t threads);

/// All of standard input. Throws Error, also after `most` bytes; then the error
/// gives `why`, the reason for the limit.
std::string readInput(uint64_t most, const std::string &why);

/// Likewise all of a file, of any kind.
std::string readFile(const std::string &path, uint64_t most,
                     const std::string &why);

/// A file that gets its final name when it is complete (TemporaryFile). If
/// `path` exists and is not a regular file (a pipe, a device), it is written
/// directly. All members throw Error.
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

  std::string path;
  std::optional<TemporaryFile> temporary;
  int device = -1;
};

/// Ids separated by commas, spaces or newlines, or JSON: an array of ids or an
/// object with the array "ids". `what` names the text in errors.
std::vector<int32_t> parseIds(std::string_view text, const char *what);

/// Seconds since `start`.
double secondsSince(std::chrono::steady_clock::time_point start);

/// A line of /proc/self/status in bytes ("VmHWM", "VmSize"), 0 where there is
/// none.
uint64_t processBytes(std::string_view key);

} // namespace qwen::run

#endif // QWEN_RUN_OUTPUT_H
