//===- CheckpointFile.cpp - Opens the files of a checkpoint ---------------===//

#include "CheckpointFile.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/OutputTarget.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

using namespace qwen;
namespace fs = std::filesystem;

[[noreturn]] static void refuse(const fs::path &path, const std::string &why) {
  throw Error("cannot read " + part::file(path.string()) + ": " +
              part::found(why));
}

/// Throws Error if `path`, where nothing is found, is a symbolic link.
static void refuseDangling(const fs::path &path) {
  std::error_code error;
  if (const fs::path target = fs::read_symlink(path, error); !error)
    refuse(path,
           "it is a symbolic link to " + quote(target.string()) +
               ", where there is nothing; download the file again, or copy "
               "the checkpoint with the files that its links lead to "
               "(cp -L)");
}

bool qwen::isThere(const fs::path &path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    refuseDangling(path);
  else if (error)
    refuse(path, error.message());
  return status.type() != fs::file_type::not_found;
}

std::optional<CheckpointFile> CheckpointFile::open(const fs::path &path) {
  // A FIFO would block in open without O_NONBLOCK.
  CheckpointFile file(path,
                      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) {
    if (errno != ENOENT && errno != ENOTDIR)
      refuse(path, std::strerror(errno));
    refuseDangling(path);
    return std::nullopt;
  }
  struct stat status;
  if (fstat(file.fd, &status) != 0)
    refuse(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    refuse(path, "it is not a file");
  noteInput(path.string());
  file.bytes = static_cast<uint64_t>(status.st_size);
  file.refusePointer();
  return file;
}

void CheckpointFile::read(char *to, size_t count) const {
  for (size_t done = 0; done < count;) {
    const ssize_t got =
        pread(fd, to + done, count - done, static_cast<off_t>(done));
    if (got == 0)
      refuse(path, "it has become shorter");
    if (got < 0 && errno != EINTR)
      refuse(path, std::strerror(errno));
    done += static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
}

/// What the pointers of Git LFS begin with: the name of their format, which was
/// Hawser's at first.
static constexpr std::string_view kPointers[] = {
    "version https://git-lfs.github.com/spec/",
    "version https://hawser.github.com/spec/",
};

void CheckpointFile::refusePointer() const {
  std::array<char, 64> start;
  const std::string_view text(start.data(),
                              std::min<uint64_t>(bytes, start.size()));
  read(start.data(), text.size());
  for (std::string_view pointer : kPointers)
    if (text.starts_with(pointer))
      refuse(path,
             "it is a Git LFS pointer, not the file itself; run \"git lfs "
             "pull\" in its folder");
}

CheckpointFile::CheckpointFile(CheckpointFile &&other) noexcept
    : path(std::move(other.path)), fd(std::exchange(other.fd, -1)),
      bytes(other.bytes) {}

CheckpointFile::~CheckpointFile() {
  if (fd >= 0)
    close(fd);
}
