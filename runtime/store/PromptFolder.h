//===- PromptFolder.h - The folder of cached prompts ------------*- C++ -*-===//
//
// Which files it has, who may use them, and how they are read and written. The
// time of a file is its last use.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_STORE_PROMPTFOLDER_H
#define QWEN_RUNTIME_STORE_PROMPTFOLDER_H

#include "engine/PageStore.h"
#include "store/OwnFolder.h"

#include <array>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/uio.h>
#include <vector>

namespace qwen {

/// A file of a page or of a snapshot, by its name and facts.
struct PromptFile {
  /// What a snapshot lies behind: a page, and tokens that fill none.
  struct Place {
    PageName before;
    int64_t tokens;
  };

  PageName name = {};
  /// Nothing for a page.
  std::optional<Place> place = {};
  /// Of head and payload.
  uint64_t bytes = 0;
  /// Nanoseconds since 1970.
  int64_t lastUse = 0;

  /// "NAME.page" or "NAME.BEFORE.TOKENS.state", the names in hexadecimal
  /// digits.
  std::string fileName() const;
  /// The file of that name, without its facts; nothing if it is no such name.
  static std::optional<PromptFile> named(std::string_view fileName);
};

/// The opened folder. One thread at a time uses it, but for `read` and
/// `readAhead`.
class PromptFolder {
public:
  /// Opens `path`. If `make` is set, makes what is missing, as far as the disk
  /// can be written. Throws Error if it cannot be used: it is missing, or
  /// OwnFolder refuses it, or it has no key of 32 bytes.
  PromptFolder(const std::filesystem::path &path, bool make);
  PromptFolder(const PromptFolder &) = delete;
  PromptFolder &operator=(const PromptFolder &) = delete;
  ~PromptFolder();

  const std::filesystem::path &path() const { return folder.path(); }
  /// Why no file can be written; empty if files can.
  const std::string &whyReadOnly() const { return readOnly; }
  /// HMAC-SHA-256 of bytes with the random key of the folder.
  PageName sign(std::span<const uint8_t> bytes) const;

  struct Files {
    std::vector<PromptFile> files = {};
    /// Number of files with other names, and one of these.
    size_t others = 0;
    std::string other = {};
  };
  /// All files. Throws Error.
  Files files() const;
  /// The time of the last change of the list of files.
  timespec changed() const;
  /// Reads the first bytes of a file, at most `to.size()`, and its size.
  /// Nothing if it is gone. Throws Error.
  struct Front {
    size_t count;
    uint64_t fileBytes;
  };
  std::optional<Front> readFront(const PromptFile &file,
                                 std::span<uint8_t> to) const;
  /// Reads a file of exactly a head and these parts. Returns false if it is
  /// gone. Throws Error if it has another size, or OwnFolder refuses it.
  bool read(const PromptFile &file, std::span<uint8_t> head,
            PageParts payload) const;
  /// Lets the system read a file before it is asked for.
  void readAhead(const PromptFile &file) const;

  /// Locks the folder against other processes that change it, if none has it.
  bool tryLock();
  /// The same, and waits for it.
  void lock();
  void unlock();

  // The caller of these has the lock.

  /// Writes a file of two parts. Returns 0 or an errno.
  int write(const PromptFile &file, std::span<const uint8_t> head,
            std::span<const uint8_t> payload) const;
  /// Sets the time of a file, if it is there.
  void touch(const PromptFile &file, int64_t lastUse) const;
  void remove(const PromptFile &file) const;
  /// Removes what killed processes left.
  void removeTemporaries() const;

private:
  /// Reads the first bytes of a file into `parts`. Returns their count and the
  /// file's size, or nothing if it is gone. Throws Error.
  std::optional<Front> readParts(const PromptFile &file,
                                 std::span<iovec> parts) const;
  /// Opens or makes the key.
  void openKey();
  bool readKey();
  std::string pathOf(const std::string &name) const {
    return (path() / name).string();
  }

  OwnFolder folder;
  int lockFile = -1;
  std::string readOnly;
  std::array<uint8_t, 32> key = {};
};

/// Hexadecimal digits.
std::string hexDigits(std::span<const uint8_t> bytes);

} // namespace qwen

#endif // QWEN_RUNTIME_STORE_PROMPTFOLDER_H
