//===- DiskStoreTest.cpp - Cached prompts on disk -------------------------===//

#include "store/DiskStore.h"

#include "TempDir.h"
#include "store/PageFile.h"

#include "qwen/ABI/Blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <fstream>
#include <linux/capability.h>
#include <mutex>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace qwen;
using test::TempDir;
namespace fs = std::filesystem;

namespace {
/// What a page is of, with the memory for it.
struct Content {
  Root root = {.artifact = "model", .key = "key", .salt = "s"};
  PageName before = {};
  std::vector<Medium> media = {};
  std::vector<int32_t> ids = std::vector<int32_t>(kPageTokens, 7);

  PageContent get() const { return {root, before, media, ids}; }
};

class DiskStoreTest : public testing::Test {
protected:
  std::unique_ptr<DiskStore> open(uint64_t most = 1 << 20) {
    return std::make_unique<DiskStore>(folder, most, *budget,
                                       [this](const std::string &line) {
                                         const std::lock_guard lock(mutex);
                                         lines.push_back(line);
                                       });
  }
  static std::vector<uint8_t> bytesOf(int number, size_t size = 1000) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < size; ++i)
      bytes[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(number));
    return bytes;
  }
  static PageName write(DiskStore &store, const Content &content,
                        const std::vector<uint8_t> &bytes) {
    const PageName name = store.nameOf(content.get());
    store.write(name, content.get(), bytes);
    store.flush();
    return name;
  }
  /// The bytes of a content, or none.
  static std::vector<uint8_t> read(DiskStore &store, const Content &content,
                                   size_t size = 1000) {
    std::vector<uint8_t> bytes(size);
    const PageName name = store.nameOf(content.get());
    if (!store.has(name))
      return {};
    // It goes to several places.
    const auto front = std::span(bytes).first(size / 3);
    const std::span<uint8_t> parts[] = {
        front, {}, std::span(bytes).subspan(front.size())};
    const bool isRead = store.read(name, content.get(), parts);
    EXPECT_EQ(store.has(name), isRead);
    return isRead ? bytes : std::vector<uint8_t>();
  }
  std::vector<fs::path> files(const char *ending) const {
    std::vector<fs::path> found;
    for (const auto &entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ending)
        found.push_back(entry.path());
    return found;
  }

  TempDir dir;
  fs::path folder = dir.path() / "a" / "cache";
  std::shared_ptr<MemoryBudget> budget = std::make_shared<MemoryBudget>();
  std::mutex mutex;
  std::vector<std::string> lines;
};
} // namespace

TEST_F(DiskStoreTest, AnotherStoreReadsWhatWasWritten) {
  Content page, state, other;
  state.ids.resize(5);
  other.ids[63] = 8;
  other.media = {{.position = 3, .count = 4, .rows = 2, .digest = {1}}};
  {
    const auto store = open();
    state.before = write(*store, page, bytesOf(1));
    EXPECT_EQ(read(*store, page), bytesOf(1));
    write(*store, state, bytesOf(2, 30));
    EXPECT_TRUE(read(*store, other).empty());
  }
  const auto store = open();
  EXPECT_EQ(read(*store, page), bytesOf(1));
  EXPECT_EQ(read(*store, state, 30), bytesOf(2, 30));
  EXPECT_EQ(store->statesBehind(state.before), 1u << 5);
  EXPECT_EQ(store->statesBehind({}), 0u);
  EXPECT_TRUE(read(*store, other).empty());
  write(*store, other, bytesOf(3));
  EXPECT_EQ(read(*store, other), bytesOf(3));
  EXPECT_TRUE(lines.empty()) << lines.front();
  // Nobody else reads any of it.
  struct stat status;
  for (const auto &entry : fs::directory_iterator(folder)) {
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << entry.path();
  }
  ASSERT_EQ(stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(fs::file_size(folder / "key"), 32u);
}

// The last bytes are on their way when the store ends.
TEST_F(DiskStoreTest, WritesWhatWaits) {
  std::vector<Content> pages(50);
  {
    const auto store = open();
    for (size_t i = 0; i < pages.size(); ++i) {
      pages[i].ids[0] = static_cast<int32_t>(i);
      const PageName name = store->nameOf(pages[i].get());
      store->write(name, pages[i].get(), bytesOf(static_cast<int>(i)));
      // It is found at once.
      EXPECT_EQ(read(*store, pages[i]), bytesOf(static_cast<int>(i)));
    }
  }
  const auto store = open();
  for (size_t i = 0; i < pages.size(); ++i)
    EXPECT_EQ(read(*store, pages[i]), bytesOf(static_cast<int>(i)));
}

// A damaged file costs its page, and no thread another one.
TEST_F(DiskStoreTest, ThreadsReadAtTheSameTime) {
  constexpr int kPages = 40, kDamaged = 17;
  std::vector<Content> pages(kPages);
  const auto store = open();
  for (int i = 0; i < kPages; ++i) {
    pages[static_cast<size_t>(i)].ids[0] = i;
    const PageName name =
        write(*store, pages[static_cast<size_t>(i)], bytesOf(i));
    if (i == kDamaged)
      std::ofstream(folder / PromptFile{.name = name}.fileName(),
                    std::ios::binary | std::ios::app)
          << "x";
  }
  std::atomic<int> next = 0;
  std::vector<std::thread> threads(4);
  for (std::thread &thread : threads)
    thread = std::thread([&] {
      for (int i; (i = next++) < kPages;) {
        const Content &page = pages[static_cast<size_t>(i)];
        store->readAhead(store->nameOf(page.get()));
        EXPECT_EQ(read(*store, page),
                  i == kDamaged ? std::vector<uint8_t>() : bytesOf(i));
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(lines.size(), 1u);
  const StoreCounts counts = store->counts("model");
  EXPECT_EQ(counts.read, kPages - 1);
  EXPECT_EQ(counts.lost, 1);
}

TEST_F(DiskStoreTest, NamesTellContentsApartAndNothingOfKeys) {
  const auto store = open();
  std::vector<Content> contents(8);
  contents[1].root.artifact = "modelk";
  contents[1].root.key = "ey";
  contents[2].root.salt = "t";
  contents[3].root.adapter = "a";
  contents[4].before[31] = 1;
  contents[5].ids.resize(63);
  contents[6].ids[2] = 8;
  contents[7].media = {{.position = 0, .count = 1, .rows = 1, .digest = {}}};
  std::vector<PageName> names;
  for (const Content &content : contents) {
    names.push_back(store->nameOf(content.get()));
    EXPECT_EQ(store->nameOf(content.get()), names.back());
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  // A folder has names of its own.
  const std::string key = store->nameOfKey("secret");
  EXPECT_EQ(key.size(), 64u);
  EXPECT_EQ(store->nameOfKey("secret"), key);
  EXPECT_NE(store->nameOfKey("secrex"), key);
  folder = dir.path() / "other";
  const auto other = open();
  EXPECT_NE(other->nameOfKey("secret"), key);
  EXPECT_NE(other->nameOf(contents[0].get()), store->nameOf(contents[0].get()));
}

TEST_F(DiskStoreTest, IgnoresWhatIsDamaged) {
  const Content page;
  write(*open(), page, bytesOf(1));
  const fs::path file = files(".page").at(0);
  std::ifstream stream(file, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(stream), {});
  const auto spoil = [&](const std::string &bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
    lines.clear();
    const auto store = open();
    EXPECT_TRUE(read(*store, page).empty());
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("is ignored"), std::string::npos) << lines[0];
    // It is written again in its place.
    write(*store, page, bytesOf(1));
    EXPECT_EQ(read(*store, page), bytesOf(1));
    EXPECT_EQ(lines.size(), 1u);
  };
  for (size_t at = 0; at < whole.size(); at += 13) {
    std::string bytes = whole;
    bytes[at] ^= 4;
    spoil(bytes);
  }
  for (size_t size : {size_t{0}, size_t{100}, whole.size() - 1})
    spoil(whole.substr(0, size));
  spoil(whole + "x");
}

TEST_F(DiskStoreTest, LooksAtNoForeignFile) {
  const Content page;
  write(*open(), page, bytesOf(1));
  const fs::path file = files(".page").at(0);
  const fs::path target = dir.path() / "target";
  const auto expectLine = [&](const std::string &part) {
    lines.clear();
    EXPECT_TRUE(read(*open(), page).empty());
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find(part), std::string::npos) << lines[0];
  };
  fs::rename(file, target);
  fs::create_symlink(target, file);
  expectLine("symbolic link");
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expectLine("no regular file");
  fs::remove(file);
  fs::rename(target, file);
  ASSERT_EQ(chmod(file.c_str(), 0622), 0);
  expectLine("may be written by other users");
  chmod(file.c_str(), 0600);
  // Files of other names are told once.
  dir.write("a/cache/x\x1b.txt", "x");
  dir.write("a/cache/y", "y");
  lines.clear();
  EXPECT_EQ(read(*open(), page), bytesOf(1));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("1 others are not of the prompt cache"),
            std::string::npos)
      << lines[0];
  EXPECT_EQ(lines[0].find('\x1b'), std::string::npos);
}

// A file that is whole, but of another content.
TEST_F(DiskStoreTest, ComparesContentsInFull) {
  const Content page;
  std::vector<Content> others(5);
  others[0].root.key = "kez";
  others[1].root.salt = "t";
  others[2].ids[63] = 8;
  others[3].before[0] = 1;
  others[4].root.artifact = "mode";
  others[4].root.adapter = "l";
  write(*open(), page, bytesOf(1));
  const fs::path file = files(".page").at(0);
  for (const Content &other : others) {
    PromptFile named;
    {
      const auto store = open();
      named.name = store->nameOf(other.get());
    }
    const fs::path path = folder / named.fileName();
    fs::copy_file(file, path);
    chmod(path.c_str(), 0600);
    lines.clear();
    EXPECT_TRUE(read(*open(), other).empty());
    EXPECT_EQ(lines.size(), 1u);
    fs::remove(path);
  }
  EXPECT_EQ(read(*open(), page), bytesOf(1));
}

TEST_F(DiskStoreTest, RefusesFoldersOfOthers) {
  const auto message = [&] { return test::messageOf([&] { open(); }); };
  write(*open(), {}, bytesOf(1));
  chmod(folder.c_str(), 0770);
  EXPECT_NE(message().find("may be written by other users"), std::string::npos);
  chmod(folder.c_str(), 0700);
  chmod((folder / "key").c_str(), 0640);
  EXPECT_NE(message().find("may be read by other users"), std::string::npos);
  chmod((folder / "key").c_str(), 0600);
  dir.write("a/cache/key", std::string(31, 'x'));
  EXPECT_NE(message().find("has 31 bytes or more when 32"), std::string::npos);
  fs::create_directory_symlink(folder, dir.path() / "link");
  folder = dir.path() / "link";
  EXPECT_NE(message().find("symbolic link"), std::string::npos);
  folder = dir.path() / "file";
  dir.write("file", "");
  EXPECT_NE(message().find("is no folder"), std::string::npos);
}

TEST_F(DiskStoreTest, TheLeastRecentlyUsedGoFirst) {
  std::vector<Content> pages(6);
  std::vector<PageName> names;
  {
    const auto store = open();
    for (size_t i = 0; i < pages.size(); ++i) {
      pages[i].ids[0] = static_cast<int32_t>(i);
      names.push_back(write(*store, pages[i], bytesOf(1)));
    }
    // A chain of three pages: its last one goes first of them.
    const std::vector<PageName> chain = {names[0], names[2], names[1]};
    store->use(chain);
    store->flush();
  }
  const uint64_t size = fs::file_size(files(".page").at(0));
  const auto store = open(6 * size);
  Content more;
  more.ids[1] = 1;
  const auto left = [&] {
    std::vector<size_t> found;
    for (size_t i = 0; i < names.size(); ++i)
      if (store->has(names[i]))
        found.push_back(i);
    return found;
  };
  write(*store, more, bytesOf(1));
  EXPECT_EQ(left(), (std::vector<size_t>{0, 1, 2, 4, 5}));
  for (int i = 2; i < 5; ++i) {
    more.ids[1] = i;
    write(*store, more, bytesOf(1));
  }
  EXPECT_EQ(left(), (std::vector<size_t>{0, 2}));
  EXPECT_EQ(files(".page").size(), 6u);
  EXPECT_LE(store->size().bytes, static_cast<int64_t>(6 * size));
  EXPECT_TRUE(lines.empty());
  // One that can never fit ends it, with a line.
  write(*store, Content{.ids = {1}}, bytesOf(1, 10000));
  write(*store, Content{.ids = {2}}, bytesOf(1, 10000));
  write(*store, Content{.ids = {3}}, bytesOf(1));
  EXPECT_EQ(lines.size(), 1u);
  EXPECT_TRUE(files(".state").empty());
}

TEST_F(DiskStoreTest, CountsByArtifact) {
  Content page, state, other;
  state.ids.resize(5);
  other.root.artifact = "other";
  int64_t bytes = 0;
  {
    const auto store = open();
    write(*store, page, bytesOf(1));
    write(*store, page, bytesOf(1));
    write(*store, state, bytesOf(2, 30));
    write(*store, other, bytesOf(3));
    const StoreCounts counts = store->counts("model");
    EXPECT_EQ(counts.written, 2);
    EXPECT_GT(counts.writtenBytes, 1030);
    EXPECT_EQ(store->counts("other").written, 1);
    EXPECT_EQ(store->counts("third").written, 0);
    bytes = store->size().bytes;
    EXPECT_EQ(bytes, counts.writtenBytes + store->counts("other").writtenBytes);
    EXPECT_EQ(store->size().waitingBytes, 0);
  }
  const auto store = open();
  EXPECT_EQ(store->size().bytes, bytes);
  read(*store, page);
  read(*store, state, 30);
  fs::remove(files(".state").at(0));
  EXPECT_TRUE(read(*store, state, 30).empty());
  const StoreCounts counts = store->counts("model");
  EXPECT_EQ(counts.read, 2);
  EXPECT_EQ(counts.readBytes, 1030);
  EXPECT_EQ(counts.readTokens, kPageTokens + 5);
  EXPECT_EQ(counts.lost, 1);
  EXPECT_EQ(counts.written, 0);
  EXPECT_EQ(store->counts("other").read, 0);
}

TEST_F(DiskStoreTest, WhatWaitsHasMemoryOfTheBudget) {
  constexpr uint64_t kLeast = DiskStore::kLeastWaiting, kMore = 1 << 20;
  // Beyond the least, it takes a part of what is left.
  budget->limitTo(kLeast + 16 * kMore, "--max-memory");
  {
    const auto store = open(uint64_t{1} << 30);
    EXPECT_EQ(budget->free(), 15 * kMore);
    Content large;
    const auto size = static_cast<size_t>(kLeast + kMore);
    write(*store, large, bytesOf(1, size));
    EXPECT_EQ(store->counts("model").dropped, 1);
    write(*store, large, bytesOf(1, size - 1000));
    EXPECT_EQ(store->counts("model").dropped, 1);
    EXPECT_EQ(store->counts("model").written, 1);
  }
  EXPECT_EQ(budget->free(), kLeast + 16 * kMore);
  budget->limitTo(kLeast - 1, "--max-memory");
  EXPECT_EQ(test::messageOf([&] { open(); }),
            "the prompt cache on disk needs at least 16777216 bytes of memory "
            "(what waits for the disk 16777216) when --max-memory allows "
            "16777215 bytes");
}

TEST_F(DiskStoreTest, CountsWhatIsNotWritten) {
  const auto store = open(2000);
  Content page, large;
  large.ids[0] = 1;
  write(*store, page, bytesOf(1));
  write(*store, large, bytesOf(1, 10000));
  EXPECT_EQ(store->counts("model").written, 1);
  EXPECT_EQ(store->counts("model").failed, 1);
  // Nothing waits any more.
  write(*store, Content{.ids = {1}}, bytesOf(1));
  EXPECT_EQ(store->counts("model").failed, 1);
  EXPECT_EQ(store->counts("model").dropped, 0);
}

// Each finds what the other has written when it starts, and neither removes
// what the other writes.
TEST_F(DiskStoreTest, TwoStoresShareAFolder) {
  const auto one = open(), two = open();
  std::vector<std::thread> threads;
  for (DiskStore *store : {one.get(), two.get()})
    threads.emplace_back([store, isOne = store == one.get()] {
      for (int i = 0; i < 40; ++i) {
        Content page;
        page.ids[0] = i;
        page.ids[1] = isOne;
        const PageName name = store->nameOf(page.get());
        store->write(name, page.get(), bytesOf(i));
        if (i % 8 == 0)
          store->use({{name}});
        EXPECT_EQ(read(*store, page), bytesOf(i));
      }
      store->flush();
    });
  for (std::thread &thread : threads)
    thread.join();
  const auto third = open();
  for (int i = 0; i < 80; ++i) {
    Content page;
    page.ids[0] = i / 2;
    page.ids[1] = i % 2;
    EXPECT_EQ(read(*third, page), bytesOf(i / 2));
  }
  EXPECT_TRUE(lines.empty());
  // What one removes, another misses without a word.
  for (const fs::path &file : files(".page"))
    fs::remove(file);
  EXPECT_TRUE(read(*third, {.ids = {0}}).empty());
  Content page;
  page.ids[0] = page.ids[1] = 0;
  EXPECT_TRUE(read(*third, page).empty());
  EXPECT_TRUE(lines.empty());
}

namespace {
/// File modes bind this thread, and those that it starts, also as root.
class BoundByModes {
public:
  BoundByModes() {
    syscall(SYS_capget, &header, before);
    __user_cap_data_struct less[2] = {before[0], before[1]};
    less[0].effective &= ~(1u << CAP_DAC_OVERRIDE);
    EXPECT_EQ(syscall(SYS_capset, &header, less), 0);
  }
  ~BoundByModes() { syscall(SYS_capset, &header, before); }
  BoundByModes(const BoundByModes &) = delete;
  BoundByModes &operator=(const BoundByModes &) = delete;

private:
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before[2] = {};
};
} // namespace

TEST_F(DiskStoreTest, ServesADiskThatCannotBeWritten) {
  const BoundByModes bound;
  const Content page;
  write(*open(), page, bytesOf(1));
  chmod(folder.c_str(), 0500);
  chmod((folder / "lock").c_str(), 0400);
  {
    const auto store = open();
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("no more prompts are written"), std::string::npos);
    EXPECT_EQ(read(*store, page), bytesOf(1));
    write(*store, {.ids = {1}}, bytesOf(1));
    EXPECT_EQ(lines.size(), 1u);
  }
  EXPECT_EQ(files(".state").size(), 0u);
  chmod(folder.c_str(), 0700);
}

TEST(PageFileTest, ReadsBackWhatAHeadSays) {
  Content content;
  content.before = {1, 2};
  content.root.adapter = std::string("a\0b", 3);
  content.media = {{.position = 3, .count = 4, .rows = 2, .digest = {9}}};
  const std::vector<uint8_t> head = pageFileHead({5}, content.get(), 1000);
  const PageRecord record = parsePageFile(head, head.size() + 1000);
  EXPECT_EQ(record.root, content.root);
  EXPECT_EQ(record.before, content.before);
  EXPECT_EQ(record.name, PageName{5});
  EXPECT_EQ(record.media, content.media);
  EXPECT_EQ(record.ids, content.ids);
  EXPECT_EQ(record.headBytes, head.size());
  EXPECT_EQ(record.payloadBytes, 1000u);
  const auto refused = [&](size_t at, uint8_t value) {
    std::vector<uint8_t> other = head;
    other[at] = value;
    return test::messageOf([&] { parsePageFile(other, other.size() + 1000); });
  };
  EXPECT_NE(refused(0, 'q').find("does not begin as one"), std::string::npos);
  EXPECT_NE(refused(8, 2).find("version 2 when version 1"), std::string::npos);
  EXPECT_NE(refused(13, 255), "");
  EXPECT_NE(refused(16, 0), "");
  EXPECT_NE(refused(23, 1).find("bytes behind its head"), std::string::npos);
  EXPECT_NE(refused(99, 255), "");
  EXPECT_NE(refused(112, 65).find("media"), std::string::npos);
  EXPECT_NE(refused(116, 65).find("tokens"), std::string::npos);
  EXPECT_NE(test::messageOf([&] { parsePageFile(head, head.size()); }), "");
  EXPECT_NE(
      test::messageOf([&] { parsePageFile(std::span(head).first(119), 119); }),
      "");
}

TEST(PromptFileTest, HasANameOfOneForm) {
  PromptFile page = {.name = {1, 0xab}};
  PromptFile state = page;
  state.place = {{0xff}, 63};
  for (const PromptFile &file : {page, state}) {
    const auto again = PromptFile::named(file.fileName());
    ASSERT_TRUE(again);
    EXPECT_EQ(again->fileName(), file.fileName());
    EXPECT_EQ(again->name, file.name);
    EXPECT_EQ(again->place.has_value(), file.place.has_value());
  }
  std::string digits = hexDigits(page.name);
  for (const std::string &name :
       {std::string(), std::string("key"), digits, digits + ".pages",
        digits + ".page.", "x" + digits.substr(1) + ".page",
        "A" + digits.substr(1) + ".page", digits + "." + digits + ".64.state",
        digits + "." + digits + ".-1.state",
        digits + "." + digits + ".01.state",
        digits + "." + digits + ".1x.state", digits + "..1.state"})
    EXPECT_FALSE(PromptFile::named(name)) << name;
}
