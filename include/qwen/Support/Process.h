//===- Process.h - Streams and signals of a tool ----------------*- C++ -*-===//
//
// The standard streams and signals of a tool, and the files that it has mapped.
// A program that embeds the runtime owns its signals: only the mains of tools
// call prepareProcess.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_PROCESS_H
#define QWEN_SUPPORT_PROCESS_H

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace qwen {

/// Prepares the standard streams and signals for the tool `name`. Closed
/// streams stay closed: no file that is opened later gets their numbers.
///
/// SIGINT, SIGTERM, SIGHUP and SIGPIPE, and exit, remove the TemporaryFile
/// before they end the program. The first three stay ignored if they were
/// ignored before (nohup). SIGBUS calls endOnFileFault. A write beyond the
/// limit on file sizes (ulimit -f) fails like a write to a full disk.
void prepareProcess(const char *name);

/// Blocks the signals of this thread, but not faults, while the object lives.
/// Threads that start meanwhile keep them blocked.
class SignalsBlocked {
public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked &) = delete;
  SignalsBlocked &operator=(const SignalsBlocked &) = delete;

private:
  sigset_t before;
};

/// Starts a thread that runs `work`. Signals are blocked in it: the main thread
/// handles them. Throws Error, which names the thread by its `purpose`, such as
/// "loads models", if the system gives none.
std::thread startThread(const char *purpose, std::function<void()> work);

/// Memory that maps a file. If the file was truncated or the disk fails, a read
/// raises SIGBUS; endOnFileFault then names the file.
class MappedRange {
public:
  MappedRange(const void *begin, size_t size, const std::string &path);
  ~MappedRange();
  MappedRange(const MappedRange &) = delete;
  MappedRange &operator=(const MappedRange &) = delete;

private:
  friend void endOnFileFault(const void *address);

  const uintptr_t begin, end;
  /// What endOnFileFault prints.
  std::string message;
  std::atomic<MappedRange *> next;
};

/// For handlers of SIGBUS. If `address` lies in a MappedRange, removes the
/// TemporaryFile and ends the program with one line and status 1. Otherwise it
/// returns.
void endOnFileFault(const void *address);

} // namespace qwen

#endif // QWEN_SUPPORT_PROCESS_H
