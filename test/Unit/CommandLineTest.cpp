//===- CommandLineTest.cpp - Command lines and their errors ---------------===//

#include "CommandLine.h"
#include "Options.h"

#include "engine/Sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace qwen;

namespace {
/// A program with two commands, like qwen-run.
struct Tool {
  Tool() {
    program.requireCommand();
    const Command write = program.addCommand("write", "Write");
    write.addText("FILE", file).required();
    write.addNumber("-n,--count", count, "Count", 1, 9);
    write.addNumber("--seed", seed, "Seed", 0);
    write.addNumber("--share", share, "Share", 0, 1);
    const Option json = write.addFlag("--json", flag);
    write.addFlag("--plain,!--fancy", plain).excludes(json);
    program.addCommand("read", "Read");
  }

  /// The error of a command line, or nothing.
  std::string error(std::vector<const char *> arguments) {
    arguments.insert(arguments.begin(), "tool");
    try {
      program.parse(static_cast<int>(arguments.size()), arguments.data());
    } catch (const UsageError &error) {
      return error.what();
    }
    return "";
  }

  const Program program{"tool", ""};
  std::string file;
  int32_t count = 0;
  std::optional<uint64_t> seed;
  std::optional<float> share;
  bool flag = false, plain = false;
};
} // namespace

static std::string errorOf(std::vector<const char *> arguments) {
  return Tool().error(std::move(arguments));
}

TEST(CommandLineTest, ReadsNumbersExactly) {
  Tool tool;
  EXPECT_EQ(tool.error({"write", "f", "-n9", "--seed", "18446744073709551615",
                        "--share=0.1", "--json"}),
            "");
  EXPECT_EQ(tool.count, 9);
  EXPECT_EQ(tool.seed, UINT64_MAX);
  EXPECT_EQ(tool.share, 0.1F);
  EXPECT_TRUE(tool.flag);
  EXPECT_EQ(tool.error({"write", "f", "-n", "08"}), "");
  EXPECT_EQ(tool.count, 8);
}

TEST(CommandLineTest, RefusesOtherNumbers) {
  for (const char *text : {"-1", "18446744073709551616", "0x10", "1e3", " 1",
                           "+1", "1 ", "one", ""})
    EXPECT_EQ(errorOf({"write", "f", "--seed", text}),
              "--seed: \"" + std::string(text) +
                  "\" is not a whole number from 0 to 18446744073709551615 "
                  "(see tool write --help)");
  for (const char *text : {"0", "10", "4294967297"})
    EXPECT_EQ(errorOf({"write", "f", "--count", text}),
              "--count: \"" + std::string(text) +
                  "\" is not a whole number from 1 to 9 (see tool write "
                  "--help)");
  for (const char *text : {"nan", "inf", "-0.1", "1.01", "1e-99", "0.5x"})
    EXPECT_EQ(errorOf({"write", "f", "--share", text}),
              "--share: \"" + std::string(text) +
                  "\" is not a number from 0 to 1 (see tool write --help)");
}

TEST(CommandLineTest, ReadsSizes) {
  const auto read = [](const std::string &text) -> std::string {
    try {
      return std::to_string(parseSize("--size", text, 2, uint64_t{8} << 30));
    } catch (const InvalidValue &error) {
      return error.what();
    }
  };
  for (const auto &[text, bytes] :
       std::map<std::string, std::string>{{"2", "2"},
                                          {"3k", "3072"},
                                          {"5 MiB", "5242880"},
                                          {"8GB", "8589934592"}})
    EXPECT_EQ(read(text), bytes);
  for (const char *text :
       {"-1", "-1GiB", "+3", "1", "0", "9GiB", "8589934593", "1.5GiB", "3x",
        "GiB", "", " 5", "18446744073709551617", "18014398509481985KiB"})
    EXPECT_EQ(read(text),
              "--size: \"" + std::string(text) +
                  "\" is not a number of bytes from 2 to 8589934592, such as "
                  "500MiB or 4GiB");
}

TEST(CommandLineTest, NamesWhatIsUnknown) {
  const std::string commands =
      "; the commands are write, read (see tool --help)";
  const std::string options = "; the options are --help, --count, --seed, "
                              "--share, --json, --plain (see tool write "
                              "--help)";
  EXPECT_EQ(errorOf({"wriet", "f"}), "unknown command \"wriet\"" + commands);
  EXPECT_EQ(errorOf({"wriet", "read"}), "unknown command \"wriet\"" + commands);
  EXPECT_EQ(errorOf({"write", "f", "--cuont", "1"}),
            "unknown option \"--cuont\"" + options);
  // The misspelled option is the error, not the file that is missing because of
  // it.
  EXPECT_EQ(errorOf({"write", "-x"}), "unknown option \"-x\"" + options);
  EXPECT_EQ(errorOf({"write", "f", "g"}),
            "unexpected argument \"g\" (see tool write --help)");
  EXPECT_EQ(errorOf({"write", "f", "a\n\x1b\xff"}),
            "unexpected argument \"a\\n\\u001b\ufffd\" (see tool write "
            "--help)");
  EXPECT_EQ(errorOf({"write", "f", std::string(300, 'x').c_str()}),
            "unexpected argument \"" + std::string(200, 'x') +
                "...\" (see tool write --help)");
}

TEST(CommandLineTest, NamesWhatIsMissing) {
  EXPECT_EQ(errorOf({}), "a command is missing; the commands are write, read "
                         "(see tool --help)");
  EXPECT_EQ(errorOf({"write"}), "FILE is missing (see tool write --help)");
  EXPECT_EQ(errorOf({"write", "--"}),
            "FILE is missing (see tool write --help)");
  EXPECT_EQ(errorOf({"write", "f", "--seed"}),
            "\"--seed\" needs a value (see tool write --help)");
}

// As variables and files of options give them.
TEST(CommandLineTest, ReadsValuesOfFlags) {
  for (const auto &[value, isSet] :
       std::map<std::string, bool>{{"1", true},
                                   {"yes", true},
                                   {"TRUE", true},
                                   {"0", false},
                                   {"no", false},
                                   {"False", false}}) {
    Tool tool;
    EXPECT_EQ(tool.error({"write", "f", ("--json=" + value).c_str()}), "");
    EXPECT_EQ(tool.flag, isSet) << value;
  }
  for (const char *bad : {"--json=2", "--json=x", "--json=-1"})
    EXPECT_NE(errorOf({"write", "f", bad}), "");
}

TEST(CommandLineTest, NamesWhatIsTooMuch) {
  EXPECT_EQ(errorOf({"write", "f", "--seed", "1", "--seed", "2"}),
            "--seed is given 2 times, once is possible (see tool write "
            "--help)");
  EXPECT_EQ(errorOf({"write", "f", "--json=7"}),
            "--json: a flag takes no value, or 1, 0, yes or no, and is given "
            "\"7\" (see tool write --help)");
  EXPECT_EQ(errorOf({"write", "f", "--json", "--fancy"}),
            "--json excludes --plain (see tool write --help)");
}

TEST(CommandLineTest, ShowsDefaultsInRange) {
  const Program program("tool", "");
  int64_t count = 7, automatic = 0;
  std::optional<int64_t> none;
  std::string text = "a b", empty;
  uint64_t size = uint64_t{3} << 20;
  enum class Mode { Off, On } mode = Mode::On;
  program.group("Numbers");
  const auto usual = [](Option option) { return option.info().defaultText; };
  EXPECT_EQ(usual(program.addNumber("--count", count, "", 1)), "7");
  EXPECT_EQ(usual(program.addNumber("--automatic", automatic, "", 1)), "");
  EXPECT_EQ(usual(program.addNumber("--none", none, "", 1)), "");
  EXPECT_EQ(usual(program.addText("--text", text)), "a b");
  EXPECT_EQ(usual(program.addText("--empty", empty)), "");
  EXPECT_EQ(usual(program.addSize("--size", size, "")), "3MiB");
  EXPECT_EQ(usual(program.addChoice("--mode", mode, {"off", "on"}, "")), "on");
  EXPECT_EQ(program.option("--count").info().group, "Numbers");
  const OptionInfo info = program.option("--mode").info();
  EXPECT_EQ(info.choices, (std::vector<std::string>{"off", "on"}));
  EXPECT_FALSE(info.takesOthers);
  std::vector<const char *> arguments = {"tool",   "--size", "2k",
                                         "--mode", "off",    "--automatic=3"};
  EXPECT_TRUE(
      program.parse(static_cast<int>(arguments.size()), arguments.data()));
  EXPECT_EQ(size, 2048u);
  EXPECT_EQ(mode, Mode::Off);
  EXPECT_EQ(automatic, 3);
  // The other variables keep their values.
  EXPECT_EQ(count, 7);
  EXPECT_EQ(text, "a b");
}

TEST(CommandLineTest, ACommandMayEndItself) {
  const Program program("tool", "");
  bool isParsed = false;
  program.onParsed([&] { isParsed = true; });
  program.addCommand("go", "Go").onRun([] { throw CommandDone(); });
  const char *const arguments[] = {"tool", "go"};
  EXPECT_FALSE(program.parse(2, arguments));
  EXPECT_TRUE(isParsed);
  EXPECT_EQ(program.chosen().value().fullName(), "tool go");
}

/// The error of an option of the sampler, from its text to the sampler.
static std::string samplingError(const std::string &option,
                                 const std::string &value) {
  const Program program("tool", "");
  run::SamplingFlags flags;
  run::addSampling(program, flags);
  std::vector<const char *> arguments = {"tool", option.c_str(), value.c_str()};
  try {
    program.parse(3, arguments.data());
    Sampler(flags.apply({}), 4, 4);
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

TEST(CommandLineTest, RefusesOptionsOfTheSamplerOutOfRange) {
  const auto nameOf = [](std::string name) {
    std::ranges::replace(name, '_', '-');
    return name;
  };
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed,  \
                      Help)                                                    \
  {                                                                            \
    const std::string name = nameOf(#Name);                                    \
    for (int64_t number : {-1, 0, 3, 1000}) {                                  \
      [[maybe_unused]] const auto value = static_cast<Type>(number);           \
      const std::string error =                                                \
          samplingError("--" + name, std::to_string(number));                  \
      EXPECT_EQ(error.empty(), Valid) << name << " " << number;                \
      EXPECT_TRUE(                                                             \
          (Valid) ||                                                           \
          error.find(std::string(" when ") + (Needed) + " is needed") !=       \
              std::string::npos ||                                             \
          error.find("is not a whole number from 0") != std::string::npos)     \
          << error;                                                            \
      EXPECT_TRUE((Valid) || error.find(name) <= 2) << error;                  \
    }                                                                          \
    EXPECT_NE(samplingError("--" + name, "nan").find("is not a "),             \
              std::string::npos);                                              \
  }
#include "qwen/ABI/SamplerOptions.def"
}
