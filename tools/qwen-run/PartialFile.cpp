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
    : target(finalPath), partial(finalPath + ".partial"),
      fd(target.openStream()), isStream(fd >= 0) {
  if (isStream)
    return;
  try {
    open();
    readLines(most, read);
  } catch (...) {
    closeFile();
    throw;
  }
}

PartialFile::~PartialFile() { closeFile(); }

void PartialFile::closeFile() {
  if (fd < 0)
    return;
  struct stat status;
  if (!isStream && fstat(fd, &status) == 0 && status.st_size == 0)
    unlink(name().c_str());
  close(fd);
}

void PartialFile::fail() const {
  throw Error("cannot write " +
              part::file(isStream ? target.path() : partial.path()) + ": " +
              part::found(std::strerror(errno)));
}

int PartialFile::openLocked() const {
  const int file =
      ::open(name().c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0)
    fail();
  if (flock(file, LOCK_EX | LOCK_NB) == 0)
    return file;
  const int error = errno;
  close(file);
  errno = error;
  if (error != EWOULDBLOCK)
    fail();
  throw Error("another run writes " + part::file(name()));
}

void PartialFile::open() {
  fd = openLocked();
  // The run that had the lock may have removed the file, or given it its final
  // name.
  while (!hasName(fd, name())) {
    close(std::exchange(fd, -1));
    fd = openLocked();
  }
  struct stat status;
  if (lstat(target.path().c_str(), &status) == 0)
    throw Error(part::file(target.path()) +
                " exists; remove it, or name another file");
}

void PartialFile::readLines(
    size_t most, const std::function<void(const std::string &text)> &read) {
  FileLines reader(name(), most);
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
      throw Error(part::file(name()) + " line " + std::to_string(line->number) +
                  ": " + error.what() + "; remove the file to begin again");
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
  if (!isStream && (fsync(fd) != 0 ||
                    std::rename(name().c_str(), target.path().c_str()) != 0))
    fail();
  if (close(std::exchange(fd, -1)) != 0)
    fail();
}
