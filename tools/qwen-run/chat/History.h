//===- History.h - The messages that a user has sent ------------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_HISTORY_H
#define QWEN_RUN_CHAT_HISTORY_H

#include <string>
#include <vector>

namespace qwen::run {

/// $XDG_STATE_HOME/qwen-run or ~/.local/state/qwen-run; empty if neither
/// variable is an absolute path.
std::string stateFolder();

/// A file of messages, each a JSON string in a line of its own. Only its owner
/// may read it. Several programs may add messages at the same time.
class History {
public:
  /// Number of messages that are kept, and of bytes of a message.
  static constexpr size_t kMostMessages = 1000, kMostBytes = 65536;

  /// Makes the folder and the file if they are missing. Throws Error, also if
  /// the file is a link, no regular file or another user's.
  explicit History(const std::string &folder);
  ~History();
  History(const History &) = delete;
  History &operator=(const History &) = delete;

  /// The messages, oldest first. Lines that are no messages are left out.
  const std::vector<std::string> &messages() const { return read; }
  /// Adds a message to the file, unless it is the last one or very long.
  /// Throws Error.
  void add(const std::string &message);

private:
  void open();
  void readAll();
  /// Removes the oldest messages of a long file.
  void shorten();
  [[noreturn]] void fail(const char *verb, int error) const;

  const std::string path;
  int fd = -1;
  std::vector<std::string> read;
  std::string last;
};

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_HISTORY_H
