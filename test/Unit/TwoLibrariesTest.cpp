//===- TwoLibrariesTest.cpp - Two versions of libqwenrt in a process ------===//

#include "HandmadeArtifact.h"

#include "qwenrt.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <filesystem>
#include <unistd.h>

using namespace qwen::test;

namespace {
/// A shared library that is loaded.
class Library {
public:
  Library(const std::string &path, int flags)
      : handle(dlopen(path.c_str(), RTLD_NOW | flags)) {
    if (!handle)
      ADD_FAILURE() << dlerror();
  }
  ~Library() { dlclose(handle); }
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;

  /// A function of the type of `like`, which this program has itself.
  template <typename Function>
  Function *get(const char *name, Function * /*like*/) const {
    return reinterpret_cast<Function *>(dlsym(handle, name));
  }

private:
  void *const handle;
};
} // namespace

#define GET(library, name) (library).get(#name, name)

TEST(TwoLibraries, DoNotMeet) {
  const std::string path = HandmadeArtifact().write("two.qwen"),
                    copy = path + ".so";
  std::filesystem::copy_file(QWENRT_LIBRARY, copy,
                             std::filesystem::copy_options::overwrite_existing);
  {
    const Library other(OTHER_LIBRARY, RTLD_GLOBAL);
    const Library first(copy, RTLD_GLOBAL), second(QWENRT_LIBRARY, RTLD_LOCAL);
    EXPECT_EQ(GET(other, qwen_vocab_size)(nullptr), 1);
    EXPECT_NE(GET(first, qwen_load), GET(second, qwen_load));
    for (const Library *library : {&first, &second}) {
      qwen_model *model = GET(*library, qwen_load)(path.c_str(), nullptr);
      ASSERT_NE(model, nullptr) << GET(*library, qwen_last_error)();
      // It calls qwen_vocab_size.
      const std::vector<float> logits(40, 0);
      int32_t ids[40];
      EXPECT_EQ(GET(*library, qwen_top_tokens)(model, logits.data(), ids, 40),
                40);
      GET(*library, qwen_free)(model);
    }
    // An error goes from one source of the library to another.
    EXPECT_EQ(GET(second, qwen_grammar_new)(nullptr, 0, "", 0), nullptr);
    EXPECT_STREQ(GET(second, qwen_last_error)(),
                 "qwen_grammar_new: model is NULL");
    EXPECT_STREQ(GET(first, qwen_last_error)(), "");
  }
  unlink(copy.c_str());
  unlink(path.c_str());
}
