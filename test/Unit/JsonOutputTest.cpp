//===- JsonOutputTest.cpp - JSON that commands print ----------------------===//

#include "JsonOutput.h"

#include <gtest/gtest.h>

#include <functional>

using namespace qwen::run;

static std::string printed(const std::function<void()> &print) {
  testing::internal::CaptureStdout();
  print();
  return testing::internal::GetCapturedStdout();
}

TEST(JsonOutputTest, KeepsTypesAndOrder) {
  const JsonText inner = jsonObject({{"yes", true}, {"no", JsonText{"null"}}});
  EXPECT_EQ(printed([&] {
              writeObject({{"z", int64_t{-1}},
                           {"most", UINT64_MAX},
                           {"whole", 1.0},
                           {"text", "a\"b"},
                           {"ids", std::vector<int32_t>{1, 2}},
                           {"list", jsonArray(std::vector<JsonText>{inner})},
                           {"names", jsonArray(std::vector<std::string>())}});
            }),
            R"({"z":-1,"most":18446744073709551615,"whole":1.0,"text":"a\"b",)"
            R"("ids":[1,2],"list":[{"yes":true,"no":null}],"names":[]})"
            "\n");
  EXPECT_EQ(printed([&] { writeJson(inner, 2); }),
            "{\n  \"yes\": true,\n  \"no\": null\n}\n");
  EXPECT_EQ(joinObjects(inner, {R"({"no": 1, "more": 1e22})"}).text,
            R"({"yes":true,"no":1,"more":1e+22})");
}

TEST(JsonOutputTest, EscapesControlCharacters) {
  // U+00A0 and the letter U+00C2 are none. A byte alone is not UTF-8.
  const JsonMember text = {"\x7f", std::string("\x1b[2J \x7f \u0080\u009f "
                                               "\u00a0\u00c2\u4e2d \x9b \xc2")};
  const std::string value = R"("\u001b[2J \u007f \u0080\u009f )"
                            "\u00a0\u00c2\u4e2d \ufffd \ufffd\"";
  EXPECT_EQ(printed([&] { writeObject({text}); }),
            R"({"\u007f":)" + value + "}\n");
  EXPECT_EQ(printed([&] { writeJson(jsonObject({text}), 1); }),
            "{\n \"\\u007f\": " + value + "\n}\n");
}
