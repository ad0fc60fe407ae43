//===- FileLines.cpp - The lines of a file --------------------------------===//

#include "qwen/Support/FileLines.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace qwen;

[[noreturn]] static void fail(const std::string &path) {
  throw Error("cannot read " + part::file(path) + ": " +
              part::found(std::strerror(errno)));
}

FileLines::FileLines(std::string path, size_t most)
    : filePath(std::move(path)), most(most) {
  // A pipe without a writer would block.
  fd = open(filePath.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail(filePath);
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    throw Error(part::file(filePath) + " is not a regular file");
  }
}

FileLines::~FileLines() { close(fd); }

bool FileLines::fill() {
  constexpr size_t kBlockBytes = 65536;
  block.resize(kBlockBytes);
  at = 0;
  ssize_t size = 0;
  do {
    size = read(fd, block.data(), block.size());
  } while (size < 0 && errno == EINTR);
  if (size < 0)
    fail(filePath);
  block.resize(static_cast<size_t>(size));
  return size > 0;
}

std::optional<FileLine> FileLines::next() {
  FileLine line{.number = lines + 1, .text = "", .begin = offset};
  while (true) {
    if (at == block.size() && !fill()) {
      if (offset == line.begin)
        return std::nullopt;
      line.isWhole = false;
      break;
    }
    const size_t end = std::min(block.find('\n', at), block.size());
    line.isTooLong |= line.text.size() + (end - at) > most;
    if (line.isTooLong)
      line.text.clear();
    else
      line.text.append(block, at, end - at);
    const size_t next = std::min(end + 1, block.size());
    offset += next - at;
    at = next;
    if (end < next)
      break;
  }
  ++lines;
  if (line.text.ends_with('\r'))
    line.text.pop_back();
  return line;
}

void FileLines::rewind() {
  if (lseek(fd, 0, SEEK_SET) != 0)
    fail(filePath);
  block.clear();
  at = 0;
  offset = lines = 0;
}
