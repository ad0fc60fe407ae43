//===- PartialFile.h - Lines that outlive a killed run ----------*- C++ -*-===//

#ifndef QWEN_RUN_PARTIALFILE_H
#define QWEN_RUN_PARTIALFILE_H

#include "qwen/Support/FileLines.h"
#include "qwen/Support/OutputTarget.h"

#include <functional>
#include <string>
#include <string_view>

namespace qwen::run {

/// A file of lines, PATH. Until it is complete, its name is PATH.partial, and
/// the run that follows a killed one goes on with it. A pipe or a device gets
/// the lines directly. All members throw Error.
class PartialFile {
public:
  /// Opens or makes PATH.partial for this process alone, and passes each of its
  /// lines to `read`. A last line without its end is cut: its run was killed.
  /// Throws Error if PATH exists, or `read` throws or a line has more than
  /// `most` bytes; these name the line.
  PartialFile(const std::string &path, size_t most,
              const std::function<void(const std::string &text)> &read);
  ~PartialFile();
  PartialFile(const PartialFile &) = delete;
  PartialFile &operator=(const PartialFile &) = delete;

  /// PATH.partial.
  const std::string &name() const { return partial.path(); }
  /// Adds lines with their ends, by one write.
  void append(std::string_view lines);
  /// Gives the file its final name.
  void commit();

private:
  void open();
  /// The descriptor of the partial file, which this process has locked.
  int openLocked() const;
  /// Closes the file. Removes one without lines.
  void closeFile();
  void readLines(size_t most,
                 const std::function<void(const std::string &text)> &read);
  /// Throws the Error of errno.
  [[noreturn]] void fail() const;

  const OutputTarget target, partial;
  int fd;
  /// Whether the lines go to a pipe or a device.
  const bool isStream;
};

} // namespace qwen::run

#endif // QWEN_RUN_PARTIALFILE_H
