//===- DiskStore.cpp - Cached prompts on disk -----------------------------===//

#include "store/DiskStore.h"

#include "store/PageFile.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

using namespace qwen;
using std::chrono::steady_clock;

/// Faults that are told one by one.
static constexpr int kMostLines = 16;
/// Removal goes on until this part of all bytes is free.
static constexpr uint64_t kFreedPart = 16;
/// Time between two tries to lock the folder, and for those at the end.
static constexpr std::chrono::milliseconds kLockWait(20), kLastWait(2000);
/// How long another process's files may stay unknown while this one writes.
static constexpr std::chrono::seconds kListAge(10);

size_t DiskStore::NameHash::operator()(const PageName &name) const {
  size_t value;
  memcpy(&value, name.data(), sizeof(value));
  return value;
}

//===----------------------------------------------------------------------===//
// The files that are known
//===----------------------------------------------------------------------===//

class DiskStore::Index {
public:
  const PromptFile *find(const PageName &name) const {
    const auto found = files.find(name);
    return found == files.end() ? nullptr : &found->second;
  }
  PromptFile *find(const PageName &name) {
    const auto found = files.find(name);
    return found == files.end() ? nullptr : &found->second;
  }

  void insert(const PromptFile &file) {
    erase(file.name);
    files.emplace(file.name, file);
    if (file.place)
      states.emplace(file.place->before, file.name);
    total += file.bytes;
  }

  void erase(const PageName &name) {
    const auto found = files.find(name);
    if (found == files.end())
      return;
    if (const auto &place = found->second.place) {
      const auto [first, last] = states.equal_range(place->before);
      const auto state = std::find_if(
          first, last, [&](const auto &entry) { return entry.second == name; });
      if (state != last)
        states.erase(state);
    }
    total -= found->second.bytes;
    files.erase(found);
  }

  uint64_t statesBehind(const PageName &before) const {
    uint64_t bits = 0;
    const auto [first, last] = states.equal_range(before);
    for (auto state = first; state != last; ++state)
      bits |= uint64_t{1} << files.at(state->second).place->tokens;
    return bits;
  }

  uint64_t bytes() const { return total; }

private:
  std::unordered_map<PageName, PromptFile, NameHash> files;
  /// The names of states by the names of the pages before them.
  std::unordered_multimap<PageName, PageName, NameHash> states;
  uint64_t total = 0;
};

//===----------------------------------------------------------------------===//
// DiskStore
//===----------------------------------------------------------------------===//

static MemoryLease takeWaiting(MemoryBudget &budget) {
  // Pages in memory are of more use.
  constexpr uint64_t kPartOfMemory = 16;
  const MemoryNeed need = {.use = MemoryUse::Store,
                           .bytes = DiskStore::kMostWaiting,
                           .least = DiskStore::kLeastWaiting,
                           .divisor = kPartOfMemory};
  return budget.take("the prompt cache on disk", {&need, 1});
}

DiskStore::DiskStore(const std::filesystem::path &path, uint64_t most,
                     MemoryBudget &budget, LogFn logLine)
    : folder(path, true), mostBytes(most), lease(takeWaiting(budget)),
      log(std::move(logLine)), index(std::make_unique<Index>()) {
  if (folder.tryLock()) {
    folder.removeTemporaries();
    folder.unlock();
  }
  const PromptFolder::Files found = readFiles();
  if (found.others)
    tell((folder.path() / found.other).string() +
         (found.others == 1
              ? " is"
              : " and " + std::to_string(found.others - 1) + " others are") +
         " not of the prompt cache, and ignored");
  if (!folder.whyReadOnly().empty())
    stopWriting(folder.whyReadOnly());
  writer = startThread("writes the prompt cache", [this] { work(); });
}

DiskStore::~DiskStore() {
  {
    const std::lock_guard lock(mutex);
    isEnding = true;
  }
  changed.notify_one();
  writer.join();
}

void DiskStore::tell(const std::string &line) {
  const int number = linesTold++;
  if (number < kMostLines)
    log("qwen-run: " + printable(line));
  else if (number == kMostLines)
    log("qwen-run: further faults of the prompt cache are not told");
}

PageName DiskStore::nameOf(const PageContent &content) const {
  // A head with no name says all of a content, and what it says of one it says
  // of no other.
  return folder.sign(pageFileHead({}, content, 0));
}

std::string DiskStore::nameOfKey(std::string_view apiKey) const {
  std::vector<uint8_t> bytes = {'k', 'e', 'y', ' '};
  bytes.insert(bytes.end(), apiKey.begin(), apiKey.end());
  return hexDigits(folder.sign(bytes));
}

bool DiskStore::has(const PageName &name) const {
  const std::lock_guard lock(mutex);
  return index->find(name) || waiting.contains(name);
}

uint64_t DiskStore::statesBehind(const PageName &before) const {
  const std::lock_guard lock(mutex);
  return index->statesBehind(before);
}

std::optional<PromptFile> DiskStore::fileOf(const PageName &name) const {
  const std::lock_guard lock(mutex);
  const PromptFile *const file = std::as_const(*index).find(name);
  return file ? std::optional(*file) : std::nullopt;
}

void DiskStore::forget(const PageName &name) {
  const std::lock_guard lock(mutex);
  index->erase(name);
}

void DiskStore::readAhead(const PageName &name) {
  if (const std::optional<PromptFile> file = fileOf(name))
    folder.readAhead(*file);
}

bool DiskStore::read(const PageName &name, const PageContent &content,
                     PageParts parts) {
  const bool isRead = readParts(name, content, parts);
  const std::lock_guard lock(mutex);
  StoreCounts &counts = sums[content.root.artifact];
  if (!isRead) {
    index->erase(name);
    ++counts.lost;
    return false;
  }
  ++counts.read;
  counts.readBytes += static_cast<int64_t>(bytesOf(parts));
  counts.readTokens += std::ssize(content.ids);
  return true;
}

bool DiskStore::readParts(const PageName &name, const PageContent &content,
                          PageParts parts) {
  const size_t size = bytesOf(parts);
  {
    const std::lock_guard lock(mutex);
    const auto found = waiting.find(name);
    if (found != waiting.end() && found->second->payload.size() == size) {
      copyToParts(found->second->payload, parts);
      return true;
    }
  }
  try {
    const std::vector<uint8_t> expected = pageFileHead(name, content, size);
    std::vector<uint8_t> head(expected.size());
    if (const std::optional<PromptFile> file = fileOf(name);
        file && folder.read(*file, head, parts)) {
      if (isPageFile(head, parts, expected))
        return true;
      tell((folder.path() / file->fileName()).string() +
           " is damaged or of another program, and is ignored");
    }
  } catch (const Error &error) {
    tell(std::string(error.what()) + ", and is ignored");
  }
  return false;
}

void DiskStore::write(const PageName &name, const PageContent &content,
                      std::span<const uint8_t> bytes) {
  if (isStopped)
    return;
  Waiting item;
  item.head = pageFileHead(name, content, bytes.size());
  if (item.head.empty())
    return;
  item.file.name = name;
  if (std::ssize(content.ids) < kPageTokens)
    item.file.place = {content.before, std::ssize(content.ids)};
  item.file.bytes = item.head.size() + bytes.size();
  {
    const std::lock_guard lock(mutex);
    // The disk is slower than the engine. What is left out is offered again
    // when its sequence ends.
    item.counts = &sums[content.root.artifact];
    if (waitingBytes + item.file.bytes > lease.bytes()) {
      ++item.counts->dropped;
      return;
    }
  }
  item.payload.assign(bytes.begin(), bytes.end());
  const auto made = std::make_shared<Waiting>(std::move(item));
  {
    const std::lock_guard lock(mutex);
    if (!waiting.try_emplace(name, made).second)
      return;
    order.push_back(made);
    waitingBytes += made->file.bytes;
  }
  changed.notify_one();
}

void DiskStore::use(std::span<const PageName> names) {
  {
    const std::lock_guard lock(mutex);
    used.insert(used.end(), names.begin(), names.end());
  }
  changed.notify_one();
}

void DiskStore::flush() {
  std::unique_lock lock(mutex);
  idle.wait(lock, [&] { return order.empty() && used.empty() && !isWorking; });
}

StoreCounts DiskStore::counts(const std::string &artifact) const {
  const std::lock_guard lock(mutex);
  const auto found = sums.find(artifact);
  return found == sums.end() ? StoreCounts() : found->second;
}

StoreSize DiskStore::size() const {
  const std::lock_guard lock(mutex);
  return {.bytes = static_cast<int64_t>(index->bytes()),
          .waitingBytes = static_cast<int64_t>(waitingBytes)};
}

//===----------------------------------------------------------------------===//
// The writing thread
//===----------------------------------------------------------------------===//

void DiskStore::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock,
                 [&] { return isEnding || !order.empty() || !used.empty(); });
    if (order.empty() && used.empty())
      return;
    std::vector<WaitingRef> batch = std::exchange(order, {});
    const std::vector<PageName> names = std::exchange(used, {});
    isWorking = true;
    lock.unlock();
    try {
      if (!isStopped && lockFolder()) {
        writeAllOf(batch);
        touch(names);
        lastChange = folder.changed();
        folder.unlock();
      }
    } catch (const Error &error) {
      folder.unlock();
      stopWriting(error.what());
    } catch (const std::bad_alloc &) {
      folder.unlock();
      stopWriting("out of memory");
    }
    for (const WaitingRef &item : batch)
      if (item)
        finish(*item);
    lock.lock();
    isWorking = false;
    idle.notify_all();
  }
}

void DiskStore::finish(const Waiting &item) {
  const std::lock_guard lock(mutex);
  waitingBytes -= item.file.bytes;
  item.counts->failed += !item.isOnDisk;
  waiting.erase(item.file.name);
}

bool DiskStore::lockFolder() {
  const auto start = steady_clock::now();
  while (!folder.tryLock()) {
    std::unique_lock lock(mutex);
    if (isEnding && steady_clock::now() - start > kLastWait)
      return false;
    changed.wait_for(lock, kLockWait, [] { return false; });
  }
  const timespec now = folder.changed();
  const bool isChanged =
      now.tv_sec != lastChange.tv_sec || now.tv_nsec != lastChange.tv_nsec;
  if (isChanged && steady_clock::now() - lastRead > kListAge)
    readFiles();
  return true;
}

static int64_t wallNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void DiskStore::writeAllOf(std::vector<WaitingRef> &batch) {
  for (WaitingRef &item : batch) {
    // Another process may have written it.
    item->isOnDisk = fileOf(item->file.name).has_value();
    if (!isStopped && !item->isOnDisk)
      writeOne(*item);
    finish(*item);
    item.reset();
  }
}

void DiskStore::writeOne(Waiting &item) {
  if (!makeRoom(item.file.bytes))
    return stopWriting("a page has " + std::to_string(item.file.bytes) +
                       " bytes when --cache-disk allows " +
                       std::to_string(mostBytes));
  std::vector<uint8_t> head = item.head;
  sealPageFile(head, item.payload);
  if (const int error = folder.write(item.file, head, item.payload))
    return stopWriting(std::strerror(error));
  PromptFile file = item.file;
  file.lastUse = wallNanoseconds();
  item.isOnDisk = true;
  const std::lock_guard lock(mutex);
  index->insert(file);
  ++item.counts->written;
  item.counts->writtenBytes += static_cast<int64_t>(file.bytes);
}

void DiskStore::touch(const std::vector<PageName> &names) {
  // The last page goes first: it is of no use without those before it.
  int64_t time = wallNanoseconds();
  for (const PageName &name : names) {
    std::optional<PromptFile> file;
    {
      const std::lock_guard lock(mutex);
      if (PromptFile *const known = index->find(name)) {
        known->lastUse = --time;
        file = *known;
      }
    }
    if (file)
      folder.touch(*file, file->lastUse);
  }
}

PromptFolder::Files DiskStore::readFiles() {
  PromptFolder::Files found = folder.files();
  lastRead = steady_clock::now();
  auto made = std::make_unique<Index>();
  for (const PromptFile &file : found.files)
    made->insert(file);
  {
    const std::lock_guard lock(mutex);
    std::swap(index, made);
  }
  return found;
}

bool DiskStore::makeRoom(uint64_t needed) {
  if (needed > mostBytes)
    return false;
  const auto bytesNow = [&] { return static_cast<uint64_t>(size().bytes); };
  if (bytesNow() + needed <= mostBytes)
    return true;
  std::vector<PromptFile> files = readFiles().files;
  std::ranges::sort(files, {}, &PromptFile::lastUse);
  const uint64_t most = mostBytes - std::max(needed, mostBytes / kFreedPart);
  for (const PromptFile &file : files) {
    if (bytesNow() <= most)
      break;
    folder.remove(file);
    forget(file.name);
  }
  return true;
}

void DiskStore::stopWriting(const std::string &why) {
  if (!isStopped.exchange(true))
    log("qwen-run: no more prompts are written to " +
        printable(folder.path().string()) + ": " + printable(why));
}
