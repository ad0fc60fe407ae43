//===- OwnFolder.h - A folder that no other user writes ---------*- C++ -*-===//
//
// Caches on disk lie in folders of the user. What another user may have written
// there, or behind a link, is refused by name.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_STORE_OWNFOLDER_H
#define QWEN_RUNTIME_STORE_OWNFOLDER_H

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Parts of the errors of a folder.
struct FolderTexts {
  /// Why no other user may write it: "a compiled model is machine code".
  std::string_view why;
  /// What uses it: "the cache".
  std::string_view user;
  /// How to choose a folder of one's own, another one, and the one behind a
  /// link: "set X to a folder of your own".
  std::string_view chooseOwn, chooseOther, chooseTarget;
};

/// The opened folder.
class OwnFolder {
public:
  /// Opens `path`, and makes it if it is missing and `make` is set. Nothing if
  /// it is missing, or, with the reason in `reason`, if it cannot be opened or
  /// made. Throws Error, which names it, if it belongs to another user, if
  /// others may write it, or if it is a link. `texts` must outlive the folder.
  static std::optional<OwnFolder> open(const std::filesystem::path &path,
                                       bool make, const FolderTexts &texts,
                                       std::string &reason);
  OwnFolder(OwnFolder &&other) noexcept;
  OwnFolder &operator=(OwnFolder &&other) noexcept;
  ~OwnFolder();

  const std::filesystem::path &path() const { return where; }
  int descriptor() const { return fd; }
  /// Whether this process may make files in it.
  bool isWritable() const;
  /// The names in the folder that do not begin with a dot. Throws Error.
  std::vector<std::string> names() const;
  /// Opens a regular file of the folder, and makes it with mode 0600 if `flags`
  /// have O_CREAT; -1 with errno if that fails. Throws Error, which names it,
  /// if it belongs to another user, if others may write it, or if it is a link.
  int openFile(const std::string &name, int flags) const;

private:
  OwnFolder(std::filesystem::path path, int fd, const FolderTexts &texts)
      : where(std::move(path)), fd(fd), texts(&texts) {}

  std::filesystem::path where;
  int fd;
  const FolderTexts *texts;
};

} // namespace qwen

#endif // QWEN_RUNTIME_STORE_OWNFOLDER_H
