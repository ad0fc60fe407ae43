//===- Process.cpp - Streams and signals of a tool ------------------------===//

#include "qwen/Support/Process.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"
#include "qwen/Support/Text.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <system_error>
#include <unistd.h>

using namespace qwen;

/// The name of the tool, for the lines of signal handlers.
static const char *toolName = "";

//===----------------------------------------------------------------------===//
// Mapped files
//===----------------------------------------------------------------------===//

// A linked list of atomics, because a signal handler reads it.
static std::atomic<MappedRange *> firstRange;
static std::mutex changeOfRanges;

MappedRange::MappedRange(const void *begin, size_t size,
                         const std::string &path)
    : begin(reinterpret_cast<uintptr_t>(begin)), end(this->begin + size),
      message(": " + printable(path) +
              " was truncated or cannot be read while it is in use\n") {
  const std::lock_guard lock(changeOfRanges);
  next = firstRange.load();
  firstRange = this;
}

MappedRange::~MappedRange() {
  const std::lock_guard lock(changeOfRanges);
  std::atomic<MappedRange *> *link = &firstRange;
  while (*link != this)
    link = &link->load()->next;
  *link = next.load();
}

void qwen::endOnFileFault(const void *address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const MappedRange *range = firstRange;
  while (range && (at < range->begin || at >= range->end))
    range = range->next;
  if (!range)
    return;
  // Other threads may have the same fault; only one prints the line.
  static std::atomic_flag taken;
  while (taken.test_and_set())
    pause();
  removeTemporaryFile();
  (void)writeAll(STDERR_FILENO, toolName, strlen(toolName));
  (void)writeAll(STDERR_FILENO, range->message.data(), range->message.size());
  _exit(1);
}

//===----------------------------------------------------------------------===//
// Signals
//===----------------------------------------------------------------------===//

/// Restores the default action of the signal `number` and raises it again. It
/// arrives when the handler returns.
static void dieOf(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

static void removeAndDie(int number) {
  removeTemporaryFile();
  dieOf(number);
}

static void handleBusError(int number, siginfo_t *info, void *) {
  // A SIGBUS that another process sent has no address.
  if (info->si_code > 0)
    endOnFileFault(info->si_addr);
  dieOf(number);
}

SignalsBlocked::SignalsBlocked() {
  // A fault belongs to its thread: if it is blocked, it ends the program
  // without a call of the handler.
  sigset_t others;
  sigfillset(&others);
  for (int fault : {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGTRAP})
    sigdelset(&others, fault);
  pthread_sigmask(SIG_SETMASK, &others, &before);
}

SignalsBlocked::~SignalsBlocked() {
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::thread qwen::startThread(const char *purpose, std::function<void()> work) {
  const SignalsBlocked blocked;
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error &) {
    throw Error(std::string("cannot start the thread that ") + purpose +
                    "; the system limits threads (ulimit -u, pids.max) or "
                    "memory",
                ErrorKind::NoMemory);
  }
}

static void prepareSignals() {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action;
    if (sigaction(number, nullptr, &action) == 0 &&
        action.sa_handler == SIG_DFL)
      signal(number, removeAndDie);
  }
  // A closed pipe ends the program, as with other tools.
  signal(SIGPIPE, removeAndDie);
  signal(SIGXFSZ, SIG_IGN);
  struct sigaction action = {};
  action.sa_sigaction = handleBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

void qwen::prepareProcess(const char *name) {
  toolName = name;
  // Some libraries end the program on errors, without destructors.
  std::atexit(removeTemporaryFile);
  for (int descriptor = 0; descriptor < 3; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0)
      // Opened in the opposite direction, so that its use still fails.
      (void)!open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY);
  prepareSignals();
}
