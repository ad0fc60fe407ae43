//===- StoredTensors.cpp - The tensors of a checkpoint --------------------===//

#include "qwen/Import/Checkpoint/StoredTensors.h"

#include "CheckpointFile.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

using namespace qwen;

/// A whole file, mapped for reading.
class StoredTensors::MappedFile {
public:
  explicit MappedFile(const std::string &path) {
    const std::optional<CheckpointFile> file = CheckpointFile::open(path);
    if (!file)
      fail(path, ENOENT);
    size = static_cast<size_t>(file->size());
    // An empty file cannot be mapped.
    if (size == 0)
      return;
    base = mmap(nullptr, size, PROT_READ, MAP_SHARED, file->descriptor(), 0);
    if (base == MAP_FAILED)
      fail(path, errno);
    range.emplace(base, size, path);
  }
  ~MappedFile() {
    if (size != 0)
      munmap(base, size);
  }
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::span<const uint8_t> bytes() const {
    return {static_cast<const uint8_t *>(base), size};
  }

private:
  [[noreturn]] static void fail(const std::string &path, int error) {
    throw Error("cannot read " + part::file(path) + ": " +
                part::found(std::strerror(error)));
  }

  void *base = nullptr;
  size_t size = 0;
  std::optional<MappedRange> range;
};

StoredTensors::StoredTensors(std::filesystem::path dir) : dir(std::move(dir)) {}
StoredTensors::StoredTensors(StoredTensors &&) noexcept = default;
StoredTensors &StoredTensors::operator=(StoredTensors &&) noexcept = default;
StoredTensors::~StoredTensors() = default;

std::span<const uint8_t> StoredTensors::map(const std::string &file) {
  auto mapped = std::make_unique<MappedFile>((dir / file).string());
  const std::span<const uint8_t> bytes = mapped->bytes();
  files.insert_or_assign(file, std::move(mapped));
  return bytes;
}

bool StoredTensors::add(std::string name, const StoredTensor &tensor) {
  return byName.try_emplace(std::move(name), tensor).second;
}

const StoredTensor *StoredTensors::find(std::string_view name) const {
  const auto found = byName.find(name);
  return found == byName.end() ? nullptr : &found->second;
}
