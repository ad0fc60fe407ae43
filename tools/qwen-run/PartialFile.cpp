//===- PartialFile.cpp - Lines that outlive a killed run ------------------===//

#include "PartialFile.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace qwen;
using namespace qwen::run;

PartialFile::PartialFile(
    const std::string &finalPath, size_t most,
    const std::function<void(const std::string &text)> &read)
    : path(finalPath), partial(finalPath + ".partial") {
  try {
    open();
    readLines(most, read);
  } catch (...) {
    if (fd >= 0)
      close(fd);
    throw;
  }
}

PartialFile::~PartialFile() {
  if (fd >= 0)
    close(fd);
}

void PartialFile::fail() const {
  throw Error("cannot write " + part::file(partial) + ": " +
              part::found(std::strerror(errno)));
}

void PartialFile::open() {
  fd = ::open(partial.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0)
    fail();
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      fail();
    throw Error("another run writes " + part::file(partial));
  }
  // Behind the lock, because the run that had it may have given this file its
  // final name.
  struct stat status;
  if (lstat(path.c_str(), &status) == 0)
    throw Error(part::file(path) + " exists; remove it, or name another file");
}

void PartialFile::readLines(
    size_t most, const std::function<void(const std::string &text)> &read) {
  FileLines reader(partial, most);
  while (const std::optional<FileLine> line = reader.next()) {
    if (!line->isWhole) {
      if (ftruncate(fd, static_cast<off_t>(line->begin)) != 0)
        fail();
      return;
    }
    try {
      if (line->isTooLong)
        throw Error("it has more than " + std::to_string(most) + " bytes");
      read(line->text);
    } catch (const Error &error) {
      throw Error(part::file(partial) + " line " +
                  std::to_string(line->number) + ": " + error.what() +
                  "; remove the file to begin again");
    }
  }
}

void PartialFile::append(std::string_view lines) {
  if (const int error = writeAll(fd, lines.data(), lines.size())) {
    errno = error;
    fail();
  }
}

void PartialFile::commit() {
  if (fsync(fd) != 0 || std::rename(partial.c_str(), path.c_str()) != 0)
    fail();
  if (close(std::exchange(fd, -1)) != 0)
    fail();
}
