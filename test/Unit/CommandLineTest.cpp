//===- CommandLineTest.cpp - Command lines and their errors ---------------===//

#include "CommandLine.h"
#include "Options.h"

#include "engine/Sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace qwen;

namespace {
/// A program with two commands, like qwen-run.
struct Program {
  Program() {
    app.require_subcommand(1);
    CLI::App *write = app.add_subcommand("write", "Write");
    write->add_option("FILE", file)->required();
    addNumber(write, "-n,--count", count, "Count", 1, 9);
    addNumber(write, "--seed", seed, "Seed", 0);
    addNumber(write, "--share", share, "Share", 0, 1);
    CLI::Option *json = write->add_flag("--json", flag);
    write->add_flag("--plain,!--fancy", plain)->excludes(json);
    app.add_subcommand("read", "Read");
  }

  /// The error of a command line, or nothing.
  std::string error(std::vector<const char *> arguments) {
    arguments.insert(arguments.begin(), "tool");
    try {
      parseCommandLine(app, static_cast<int>(arguments.size()),
                       arguments.data());
    } catch (const UsageError &error) {
      return error.what();
    }
    return "";
  }

  CLI::App app{"", "tool"};
  std::string file;
  int32_t count = 0;
  std::optional<uint64_t> seed;
  std::optional<float> share;
  bool flag = false, plain = false;
};
} // namespace

static std::string errorOf(std::vector<const char *> arguments) {
  return Program().error(std::move(arguments));
}

TEST(CommandLineTest, ReadsNumbersExactly) {
  Program program;
  EXPECT_EQ(program.error({"write", "f", "-n9", "--seed",
                           "18446744073709551615", "--share=0.1", "--json"}),
            "");
  EXPECT_EQ(program.count, 9);
  EXPECT_EQ(program.seed, UINT64_MAX);
  EXPECT_EQ(program.share, 0.1F);
  EXPECT_TRUE(program.flag);
  EXPECT_EQ(program.error({"write", "f", "-n", "08"}), "");
  EXPECT_EQ(program.count, 8);
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
            "unexpected argument \"a\\n\\u001b\\ufffd\" (see tool write "
            "--help)");
  EXPECT_EQ(errorOf({"write", "f", std::string(100, 'x').c_str()}),
            "unexpected argument \"" + std::string(60, 'x') +
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
    Program program;
    EXPECT_EQ(program.error({"write", "f", ("--json=" + value).c_str()}), "");
    EXPECT_EQ(program.flag, isSet) << value;
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

/// The error of an option of the sampler, from its text to the sampler.
static std::string samplingError(const std::string &option,
                                 const std::string &value) {
  CLI::App app{"", "tool"};
  run::SamplingFlags flags;
  run::addSampling(&app, flags);
  std::vector<const char *> arguments = {"tool", option.c_str(), value.c_str()};
  try {
    parseCommandLine(app, 3, arguments.data());
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
