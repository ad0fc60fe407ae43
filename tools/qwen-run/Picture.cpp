//===- Picture.cpp - Steps by thread as SVG -------------------------------===//

#include "Profile.h"

#include <algorithm>
#include <cstdio>

using namespace qwen;
using namespace qwen::run;

static constexpr int kLeft = 70, kWidth = 1600, kRow = 34, kMargin = 12;

namespace {
struct Colour {
  OpKind kind;
  const char *code;
};
} // namespace

/// The colours of kinds of ops; others are grey.
static constexpr Colour kColours[] = {
    {OpKind::Embedding, "#8c6bb1"}, {OpKind::RopeTable, "#c994c7"},
    {OpKind::RmsNorm, "#e6ab02"},   {OpKind::Quantize, "#a6761d"},
    {OpKind::Linear, "#4575b4"},    {OpKind::Append, "#66a61e"},
    {OpKind::Attention, "#d7301f"}, {OpKind::SwiGlu, "#1b9e77"},
    {OpKind::LmHead, "#74add1"}};

/// Escapes text for XML: a manifest's names may contain any characters.
static std::string escaped(const std::string &text) {
  std::string result;
  for (const char c : text)
    if (c == '<' || c == '>' || c == '&' || static_cast<unsigned char>(c) < ' ')
      result += "&#" + std::to_string(c < ' ' ? 32 : c) + ";";
    else
      result += c;
  return result;
}

static std::string fixed(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

static std::string textAt(double x, int y, const std::string &text) {
  return "<text x=\"" + fixed(x) + "\" y=\"" + std::to_string(y) + "\">" +
         escaped(text) + "</text>\n";
}

std::string qwen::run::drawStep(const std::string &title,
                                const Manifest &manifest, const Tracer &tracer,
                                int &y) {
  int64_t begin = INT64_MAX, end = 0;
  for (int32_t thread = 0; thread < tracer.threads(); ++thread)
    for (const Tracer::Event &event : tracer.events(thread)) {
      begin = std::min(begin, event.nanoseconds);
      end = std::max(end, event.nanoseconds);
    }
  std::string svg = textAt(kLeft, y += 30, title);
  if (begin >= end)
    return svg;
  const ProgramInfo &program = manifest.forward();
  const double scale = kWidth / static_cast<double>(end - begin);
  y += kMargin;
  for (int32_t thread = 0; thread < tracer.threads(); ++thread, y += kRow) {
    svg += textAt(kMargin, y + kRow / 2, "thread " + std::to_string(thread));
    const std::vector<Tracer::Event> &events = tracer.events(thread);
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const auto &[from, op] = events[i];
      if (op < 0 || static_cast<size_t>(op) >= program.ops.size())
        continue;
      const auto index = static_cast<size_t>(op);
      const auto spent = static_cast<double>(events[i + 1].nanoseconds - from);
      const auto *colour =
          std::ranges::find(kColours, program.work[index].kind, &Colour::kind);
      svg += "<rect x=\"" +
             fixed(kLeft + static_cast<double>(from - begin) * scale) +
             "\" y=\"" + std::to_string(y) + "\" width=\"" +
             fixed(std::max(spent * scale, 0.02)) + "\" height=\"" +
             std::to_string(kRow - 6) + "\" fill=\"" +
             (colour == std::end(kColours) ? "#999999" : colour->code) +
             "\"><title>" + escaped(program.ops[index]) + ": " +
             fixed(spent * 1e-3) + " us</title></rect>\n";
    }
  }
  svg += textAt(kLeft, y + kMargin, "0 ms");
  svg += textAt(kLeft + kWidth - 60, y + kMargin,
                fixed(static_cast<double>(end - begin) * 1e-6) + " ms");
  y += 2 * kMargin;
  return svg;
}

std::string qwen::run::drawPicture(const std::string &parts, int height) {
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
                    std::to_string(kLeft + kWidth + kMargin) + "\" height=\"" +
                    std::to_string(height + 40) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
                    parts;
  int x = kLeft;
  for (const auto &[kind, colour] : kColours) {
    svg += "<rect x=\"" + std::to_string(x) + "\" y=\"" +
           std::to_string(height + 12) +
           "\" width=\"12\" height=\"12\" fill=\"" + colour + "\"/>\n" +
           textAt(x + 16, height + 22, std::string(opKindName(kind)));
    x += 110;
  }
  return svg + textAt(x, height + 22, "white: waiting") + "</svg>\n";
}
