//===- RootTable.cpp - The roots of prompts -------------------------------===//

#include "engine/RootTable.h"

#include <map>
#include <mutex>
#include <utility>

using namespace qwen;

struct RootTable::Roots {
  struct Entry {
    std::weak_ptr<const Root> root;
    /// A root may be asked for again after its last RootRef has ended and
    /// before its hold does.
    int64_t holds = 0;
  };

  std::mutex mutex;
  std::map<Root, Entry> entries;
};

struct RootTable::Hold {
  explicit Hold(std::shared_ptr<Roots> all) : roots(std::move(all)) {}
  Hold(const Hold &) = delete;
  Hold &operator=(const Hold &) = delete;
  ~Hold() {
    if (entry == roots->entries.end())
      return;
    const std::lock_guard lock(roots->mutex);
    if (--entry->second.holds == 0)
      roots->entries.erase(entry);
  }

  const std::shared_ptr<Roots> roots;
  std::map<Root, Roots::Entry>::iterator entry = roots->entries.end();
};

RootTable::RootTable() : roots(std::make_shared<Roots>()) {}

RootRef RootTable::intern(Root root) {
  // Made before the lock, which its end takes.
  const auto hold = std::make_shared<Hold>(roots);
  const std::lock_guard lock(roots->mutex);
  const auto entry = roots->entries.try_emplace(std::move(root)).first;
  if (RootRef present = entry->second.root.lock())
    return present;
  hold->entry = entry;
  ++entry->second.holds;
  RootRef made(hold, &entry->first);
  entry->second.root = made;
  return made;
}

size_t RootTable::size() const {
  const std::lock_guard lock(roots->mutex);
  return roots->entries.size();
}
