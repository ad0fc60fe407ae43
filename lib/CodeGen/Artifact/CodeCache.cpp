//===- CodeCache.cpp - Machine code of earlier compiles -------------------===//

#include "CodeCache.h"

#include "qwen/Support/Error.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/Caching.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

/// The folder of the cache, or null. Files that nobody has used for a week are
/// removed.
static const char *cacheFolder() {
  const char *folder = std::getenv("QWEN_CODE_CACHE");
  if (!folder || !*folder)
    return nullptr;
  [[maybe_unused]] static const bool pruned =
      llvm::pruneCache(folder, llvm::CachePruningPolicy());
  return folder;
}

[[noreturn]] static void fail(const char *folder, llvm::Error error) {
  throw Error(part::file(folder) + ": cannot keep code: " +
              part::found(llvm::toString(std::move(error))) +
              "; set QWEN_CODE_CACHE to another folder, or to none");
}

/// The value of `expected`. Throws Error.
template <typename T>
static T valueOf(llvm::Expected<T> expected, const char *folder) {
  if (!expected)
    fail(folder, expected.takeError());
  return std::move(*expected);
}

static uint64_t checksum(llvm::StringRef bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

/// The checksum of this program.
static uint64_t programChecksum(const char *folder) {
  static const uint64_t result = checksum(
      valueOf(llvm::errorOrToExpected(llvm::MemoryBuffer::getFile(
                  "/proc/self/exe", false, /*RequiresNullTerminator=*/false)),
              folder)
          ->getBuffer());
  return result;
}

/// The name of the file for `identity`: a hash of all that its code depends on.
static std::string fileName(llvm::StringRef identity, const char *folder) {
  const std::string text = (identity + "\n" + LLVM_VERSION_STRING + "\n" +
                            llvm::utohexstr(programChecksum(folder)))
                               .str();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return llvm::utohexstr(hash.high64) + "-" + llvm::utohexstr(hash.low64);
}

/// A file has the checksum of an object and the object. Returns the object, or
/// nothing if the file is damaged.
static std::vector<char> objectOf(llvm::StringRef file) {
  uint64_t expected = 0;
  if (file.size() < sizeof(expected))
    return {};
  std::memcpy(&expected, file.data(), sizeof(expected));
  const llvm::StringRef object = file.drop_front(sizeof(expected));
  if (checksum(object) != expected)
    return {};
  return {object.begin(), object.end()};
}

/// The object of an earlier call of this process, or of `generate`.
static std::vector<char>
rememberedObject(llvm::StringRef identity,
                 llvm::function_ref<std::vector<char>()> generate) {
  static std::mutex mutex;
  static std::map<std::pair<uint64_t, uint64_t>, std::vector<char>> objects;
  const XXH128_hash_t hash = XXH3_128bits(identity.data(), identity.size());
  const std::pair key(hash.high64, hash.low64);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = objects.find(key); found != objects.end())
      return found->second;
  }
  std::vector<char> object = generate();
  const std::lock_guard lock(mutex);
  return objects.emplace(key, std::move(object)).first->second;
}

std::vector<char>
qwen::cachedObject(llvm::StringRef identity,
                   llvm::function_ref<std::vector<char>()> generate) {
  const char *folder = cacheFolder();
  if (!folder)
    return rememberedObject(identity, generate);
  std::vector<char> found;
  llvm::FileCache cache =
      valueOf(llvm::localCache("code", "code", folder,
                               [&](unsigned, const llvm::Twine &,
                                   std::unique_ptr<llvm::MemoryBuffer> buffer) {
                                 found = objectOf(buffer->getBuffer());
                               }),
              folder);
  const llvm::AddStreamFn add =
      valueOf(cache(0, fileName(identity, folder), ""), folder);
  if (!found.empty())
    return found;
  std::vector<char> object = generate();
  // A damaged file stays as it is.
  if (!add)
    return object;
  const std::unique_ptr<llvm::CachedFileStream> stream =
      valueOf(add(0, ""), folder);
  const uint64_t sum = checksum({object.data(), object.size()});
  stream->OS->write(reinterpret_cast<const char *>(&sum), sizeof(sum));
  stream->OS->write(object.data(), object.size());
  if (llvm::Error error = stream->commit())
    fail(folder, std::move(error));
  return object;
}
