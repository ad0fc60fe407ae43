//===- ProgressBar.cpp - Progress on a terminal ---------------------------===//

#include "ProgressBar.h"

#include <cstdio>
#include <unistd.h>
#include <utility>

using namespace qwen;

static constexpr size_t kWidth = 40;

ProgressBar::ProgressBar(std::string label)
    : label(std::move(label)), isTerminal(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (percent >= 0)
    std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  const int now =
      static_cast<int>(total == 0 ? 100 : double(done) / double(total) * 100);
  if (!isTerminal || now == percent)
    return;
  percent = now;
  std::string bar(static_cast<size_t>(now) * kWidth / 100, '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "\r%s [%s] %3d%%", label.c_str(), bar.c_str(), now);
  std::fflush(stderr);
}
