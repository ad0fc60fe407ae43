//===- PromptFolder.cpp - The folder of cached prompts --------------------===//

#include "store/PromptFolder.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace qwen;
namespace fs = std::filesystem;

static constexpr char kKeyName[] = "key", kLockName[] = "lock";
/// Names of files that are not complete, before a number.
static constexpr std::string_view kTemporary = "tmp.";
static constexpr std::string_view kPageEnding = "page", kStateEnding = "state";

static constexpr FolderTexts kFolderTexts = {
    .why = "answers depend on cached prompts",
    .user = "the prompt cache",
    .chooseOwn = "give --cache-dir a folder of your own",
    .chooseOther = "give --cache-dir another",
    .chooseTarget = "give --cache-dir its target"};

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

std::string qwen::hexDigits(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

/// The name of hexadecimal digits as hexDigits writes them, or nothing.
static std::optional<PageName> nameOfDigits(std::string_view digits) {
  PageName name;
  if (digits.size() != 2 * name.size())
    return std::nullopt;
  for (size_t i = 0; i < name.size(); ++i)
    std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, name[i],
                    16);
  return hexDigits(name) == digits ? std::optional(name) : std::nullopt;
}

std::string PromptFile::fileName() const {
  std::string text = hexDigits(name) + ".";
  if (!place)
    return text + std::string(kPageEnding);
  return text + hexDigits(place->before) + "." + std::to_string(place->tokens) +
         "." + std::string(kStateEnding);
}

std::optional<PromptFile> PromptFile::named(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t dot; (dot = text.find('.')) != text.npos;
       text.remove_prefix(dot + 1))
    parts.push_back(text.substr(0, dot));
  parts.push_back(text);
  const std::optional<PageName> name = nameOfDigits(parts[0]);
  if (!name)
    return std::nullopt;
  if (parts.size() == 2 && parts[1] == kPageEnding)
    return PromptFile{.name = *name};
  if (parts.size() != 4 || parts[3] != kStateEnding)
    return std::nullopt;
  const std::optional<PageName> before = nameOfDigits(parts[1]);
  int64_t tokens = -1;
  std::from_chars(parts[2].data(), parts[2].data() + parts[2].size(), tokens);
  if (!before || tokens < 0 || tokens >= kPageTokens ||
      std::to_string(tokens) != parts[2])
    return std::nullopt;
  return PromptFile{.name = *name, .place = Place{*before, tokens}};
}

//===----------------------------------------------------------------------===//
// The folder and its key
//===----------------------------------------------------------------------===//

static OwnFolder openFolder(const fs::path &path, bool make) {
  std::string reason;
  if (std::optional<OwnFolder> folder =
          OwnFolder::open(path, make, kFolderTexts, reason))
    return std::move(*folder);
  throw Error(reason.empty()
                  ? part::file(path.string()) + " does not exist when " +
                        part::needed("the folder of a prompt cache") +
                        " is needed"
                  : "cannot use the prompt cache " + part::found(reason));
}

PromptFolder::PromptFolder(const fs::path &path, bool make)
    : folder(openFolder(path, make)) {
  lockFile = folder.openFile(kLockName, O_RDWR | (make ? O_CREAT : 0));
  if (lockFile < 0)
    readOnly = std::strerror(errno);
  try {
    openKey();
  } catch (...) {
    if (lockFile >= 0)
      close(lockFile);
    throw;
  }
}

PromptFolder::~PromptFolder() {
  if (lockFile >= 0)
    close(lockFile);
}

bool PromptFolder::readKey() {
  const int file = folder.openFile(kKeyName, O_RDONLY);
  if (file < 0) {
    if (errno == ENOENT)
      return false;
    throw Error("cannot read " + part::file(pathOf(kKeyName)) + ": " +
                part::found(std::strerror(errno)));
  }
  struct stat status = {};
  std::array<uint8_t, 33> bytes;
  const bool isKnown = fstat(file, &status) == 0;
  const ssize_t count = pread(file, bytes.data(), bytes.size(), 0);
  close(file);
  if (!isKnown || (status.st_mode & (S_IRGRP | S_IROTH)))
    throw Error(part::file(pathOf(kKeyName)) +
                " may be read by other users when it keeps API keys secret: "
                "clear the cache, remove the key, or set its mode to 0600");
  if (count != std::ssize(key))
    throw Error(part::file(pathOf(kKeyName)) + " has " + part::found(count) +
                " bytes or more when " + part::needed(key.size()) +
                " are needed: remove it and all files beside it");
  std::copy_n(bytes.begin(), key.size(), key.begin());
  return true;
}

void PromptFolder::openKey() {
  if (readKey())
    return;
  if (lockFile < 0)
    throw Error(
        part::file(path().string()) +
        " is no prompt cache, and cannot become one: " + part::found(readOnly));
  lock();
  int error = 0;
  // Another process may have made it meanwhile.
  if (!readKey()) {
    if (getrandom(key.data(), key.size(), 0) != std::ssize(key))
      throw Error("the system gives no random bytes for the prompt cache");
    const std::string temporary = std::string(kTemporary) + kKeyName;
    unlinkat(folder.descriptor(), temporary.c_str(), 0);
    const int file = folder.openFile(temporary, O_WRONLY | O_CREAT | O_EXCL);
    error = file < 0 ? errno : writeAll(file, key.data(), key.size());
    // Without it, all files are lost.
    if (!error && fsync(file) != 0)
      error = errno;
    if (file >= 0)
      close(file);
    if (!error && renameat(folder.descriptor(), temporary.c_str(),
                           folder.descriptor(), kKeyName) != 0)
      error = errno;
  }
  unlock();
  if (error)
    throw Error("cannot write " + part::file(pathOf(kKeyName)) + ": " +
                part::found(std::strerror(error)));
}

PageName PromptFolder::sign(std::span<const uint8_t> bytes) const {
  PageName name = {};
  unsigned size = 0;
  if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
            bytes.data(), bytes.size(), name.data(), &size) ||
      size != name.size())
    throw std::bad_alloc();
  return name;
}

bool PromptFolder::tryLock() {
  return lockFile >= 0 && flock(lockFile, LOCK_EX | LOCK_NB) == 0;
}

void PromptFolder::lock() {
  while (flock(lockFile, LOCK_EX) != 0 && errno == EINTR)
    ;
}

void PromptFolder::unlock() { (void)flock(lockFile, LOCK_UN); }

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static int64_t nanoseconds(const timespec &time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

PromptFolder::Files PromptFolder::files() const {
  Files result;
  for (const std::string &name : folder.names()) {
    std::optional<PromptFile> file = PromptFile::named(name);
    struct stat status;
    if (!file) {
      if (name != kKeyName && name != kLockName &&
          !name.starts_with(kTemporary) && result.others++ == 0)
        result.other = name;
    } else if (fstatat(folder.descriptor(), name.c_str(), &status,
                       AT_SYMLINK_NOFOLLOW) == 0) {
      file->bytes = static_cast<uint64_t>(status.st_size);
      file->lastUse = nanoseconds(status.st_mtim);
      result.files.push_back(*file);
    }
  }
  return result;
}

timespec PromptFolder::changed() const {
  struct stat status = {};
  (void)fstat(folder.descriptor(), &status);
  return status.st_mtim;
}

/// Reads up to the ends of all parts or of the file. Returns the number of
/// bytes, or -1 with errno.
static ssize_t readAll(int file, std::span<iovec> parts) {
  ssize_t total = 0;
  while (!parts.empty()) {
    const ssize_t count =
        preadv(file, parts.data(), static_cast<int>(parts.size()), total);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return count < 0 ? -1 : total;
    total += count;
    for (auto left = static_cast<size_t>(count); left;) {
      const size_t part = std::min(left, parts.front().iov_len);
      parts.front().iov_base =
          static_cast<uint8_t *>(parts.front().iov_base) + part;
      parts.front().iov_len -= part;
      left -= part;
      if (parts.front().iov_len == 0)
        parts = parts.subspan(1);
    }
  }
  return total;
}

std::optional<PromptFolder::Front>
PromptFolder::readParts(const PromptFile &file, std::span<iovec> parts) const {
  const std::string name = file.fileName();
  const int opened = folder.openFile(name, O_RDONLY);
  if (opened < 0 && errno == ENOENT)
    return std::nullopt;
  struct stat status = {};
  ssize_t count = -1;
  if (opened >= 0 && fstat(opened, &status) == 0)
    count = readAll(opened, parts);
  const int error = errno;
  if (opened >= 0)
    close(opened);
  if (count < 0)
    throw Error("cannot read " + part::file(pathOf(name)) + ": " +
                part::found(std::strerror(error)));
  return Front{static_cast<size_t>(count),
               static_cast<uint64_t>(status.st_size)};
}

std::optional<PromptFolder::Front>
PromptFolder::readFront(const PromptFile &file, std::span<uint8_t> to) const {
  iovec part = {to.data(), to.size()};
  return readParts(file, {&part, 1});
}

bool PromptFolder::read(const PromptFile &file, std::span<uint8_t> head,
                        PageParts payload) const {
  std::vector<iovec> parts = {{head.data(), head.size()}};
  for (const std::span<uint8_t> part : payload)
    parts.push_back({part.data(), part.size()});
  const std::optional<Front> front = readParts(file, parts);
  if (!front)
    return false;
  const uint64_t size = head.size() + bytesOf(payload);
  // Another process may cut a file while it is read.
  const uint64_t found =
      front->fileBytes == size ? front->count : front->fileBytes;
  if (found != size)
    throw Error(part::file(pathOf(file.fileName())) + " has " +
                part::found(found) + " bytes when " + part::needed(size) +
                " are needed");
  return true;
}

void PromptFolder::readAhead(const PromptFile &file) const {
  const int opened = openat(folder.descriptor(), file.fileName().c_str(),
                            O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0)
    return;
  (void)posix_fadvise(opened, 0, 0, POSIX_FADV_WILLNEED);
  close(opened);
}

int PromptFolder::write(const PromptFile &file, std::span<const uint8_t> head,
                        std::span<const uint8_t> payload) const {
  const std::string temporary =
      std::string(kTemporary) + std::to_string(getpid());
  unlinkat(folder.descriptor(), temporary.c_str(), 0);
  const int opened = folder.openFile(temporary, O_WRONLY | O_CREAT | O_EXCL);
  int error = opened < 0 ? errno : writeAll(opened, head.data(), head.size());
  if (!error)
    error = writeAll(opened, payload.data(), payload.size());
  if (opened >= 0 && close(opened) != 0 && !error)
    error = errno;
  if (!error && renameat(folder.descriptor(), temporary.c_str(),
                         folder.descriptor(), file.fileName().c_str()) != 0)
    error = errno;
  if (error)
    unlinkat(folder.descriptor(), temporary.c_str(), 0);
  return error;
}

void PromptFolder::touch(const PromptFile &file, int64_t lastUse) const {
  const timespec time = {lastUse / 1'000'000'000, lastUse % 1'000'000'000};
  const timespec times[] = {time, time};
  utimensat(folder.descriptor(), file.fileName().c_str(), times,
            AT_SYMLINK_NOFOLLOW);
}

void PromptFolder::remove(const PromptFile &file) const {
  unlinkat(folder.descriptor(), file.fileName().c_str(), 0);
}

void PromptFolder::removeTemporaries() const {
  for (const std::string &name : folder.names())
    if (name.starts_with(kTemporary))
      unlinkat(folder.descriptor(), name.c_str(), 0);
}
