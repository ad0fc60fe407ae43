//===- OwnFolder.cpp - A folder that no other user writes -----------------===//

#include "store/OwnFolder.h"

#include "qwen/Support/Error.h"

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace qwen;
namespace fs = std::filesystem;

/// Throws Error unless only this user can write what `status` describes.
static void requireOwn(const struct stat &status, const fs::path &path,
                       const FolderTexts &texts) {
  const uid_t user = geteuid();
  const std::string wayOut = " when " + std::string(texts.why) +
                             ": remove it, or " + std::string(texts.chooseOwn);
  if (status.st_uid != user)
    throw Error(part::file(path.string()) + " belongs to user " +
                part::found(status.st_uid) + " and not to " +
                part::needed(user) + wayOut);
  if (status.st_mode & (S_IWGRP | S_IWOTH))
    throw Error(part::file(path.string()) + " may be written by other users" +
                wayOut);
}

[[noreturn]] static void refuseLink(const fs::path &path,
                                    const FolderTexts &texts) {
  throw Error(part::file(path.string()) + " is a symbolic link, which " +
              texts.user + " does not follow; " + texts.chooseTarget);
}

/// Makes `path` and the folders above it. Returns 0 or an errno.
static int makeFolder(const fs::path &path) {
  std::error_code error;
  if (const fs::path above = path.parent_path(); !above.empty())
    fs::create_directories(above, error);
  if (error)
    return error.value();
  return mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST ? 0 : errno;
}

std::optional<OwnFolder> OwnFolder::open(const fs::path &path, bool make,
                                         const FolderTexts &texts,
                                         std::string &reason) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const auto fail = [&](int error) {
    reason = path.string() + ": " + std::strerror(error);
    return std::nullopt;
  };
  int fd = ::open(path.c_str(), kFlags);
  if (fd < 0 && errno == ENOENT && make) {
    if (const int error = makeFolder(path))
      return fail(error);
    fd = ::open(path.c_str(), kFlags);
  }
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT && !make)
      return std::nullopt;
    std::error_code ignored;
    if (fs::is_symlink(path, ignored))
      refuseLink(path, texts);
    if (error == ENOTDIR)
      throw Error(part::file(path.string()) + " is no folder when " +
                  texts.user + " needs one; remove it, or " +
                  texts.chooseOther);
    return fail(error);
  }
  OwnFolder folder(path, fd, texts);
  struct stat status;
  if (fstat(fd, &status) != 0)
    return fail(errno);
  requireOwn(status, path, texts);
  return folder;
}

OwnFolder::OwnFolder(OwnFolder &&other) noexcept
    : where(std::move(other.where)), fd(std::exchange(other.fd, -1)),
      texts(other.texts) {}

OwnFolder &OwnFolder::operator=(OwnFolder &&other) noexcept {
  std::swap(where, other.where);
  std::swap(fd, other.fd);
  std::swap(texts, other.texts);
  return *this;
}

OwnFolder::~OwnFolder() {
  if (fd >= 0)
    close(fd);
}

bool OwnFolder::isWritable() const {
  return faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0;
}

int OwnFolder::openFile(const std::string &name, int flags) const {
  // A FIFO would block without O_NONBLOCK.
  const int file =
      openat(fd, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
             S_IRUSR | S_IWUSR);
  if (file < 0) {
    if (errno == ELOOP)
      refuseLink(where / name, *texts);
    return -1;
  }
  struct stat status;
  try {
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
      throw Error(part::file((where / name).string()) +
                  " is no regular file; remove it");
    requireOwn(status, where / name, *texts);
  } catch (...) {
    close(file);
    throw;
  }
  return file;
}

std::vector<std::string> OwnFolder::names() const {
  std::vector<std::string> result;
  const int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = own < 0 ? nullptr : fdopendir(own);
  if (!stream)
    throw Error("cannot read " + part::file(where.string()) + ": " +
                part::found(std::strerror(errno)));
  // Only this thread has the stream.
  while (const dirent *entry = readdir(stream)) // NOLINT(concurrency-mt-unsafe)
    if (entry->d_name[0] != '.')
      result.emplace_back(entry->d_name);
  closedir(stream);
  return result;
}
