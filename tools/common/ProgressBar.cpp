//===- ProgressBar.cpp - Progress on a terminal ---------------------------===//

#include "ProgressBar.h"

#include "qwen/Support/TemporaryFile.h"

#include <cstdio>
#include <unistd.h>
#include <utility>

using namespace qwen;

static constexpr size_t kWidth = 40;

/// The file descriptor that gets reports of bars; negative: none.
static int reportDescriptor = -1;

void ProgressBar::report(int descriptor) { reportDescriptor = descriptor; }

bool ProgressBar::isReported() { return reportDescriptor >= 0; }

ProgressBar::ProgressBar(std::string label)
    : label(std::move(label)), isTerminal(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (percent >= 0 && !isReported())
    std::fputs("\r\033[K", stderr);
}

std::string ProgressBar::timeLeft(uint64_t done, uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (!start)
    start = {now, done};
  const std::chrono::duration<double> elapsed = now - start->first;
  constexpr double kLeast = 5;
  if (elapsed.count() < kLeast || done <= start->second)
    return "";
  const double left =
      elapsed.count() * double(total - done) / double(done - start->second);
  char text[40];
  std::snprintf(text, sizeof text, ", %d:%02d left", int(left) / 60,
                int(left) % 60);
  return text;
}

void ProgressBar::draw(const std::string &left) const {
  std::string bar(static_cast<size_t>(percent) * kWidth / 100, '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "\r%s [%s] %3d%%%s\033[K", label.c_str(), bar.c_str(),
               percent, left.c_str());
  std::fflush(stderr);
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  if (!isTerminal && !isReported())
    return;
  const std::string left = timeLeft(done, total);
  const int now =
      static_cast<int>(total == 0 ? 100 : double(done) / double(total) * 100);
  if (now == percent)
    return;
  percent = now;
  if (!isReported())
    return draw(left);
  const std::string line = R"({"stage": ")" + label + R"(", "done": )" +
                           std::to_string(done) + R"(, "total": )" +
                           std::to_string(total) + "}\n";
  // Nobody may listen any more.
  (void)writeAll(reportDescriptor, line.data(), line.size());
}
