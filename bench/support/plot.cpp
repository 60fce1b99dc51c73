// An SVG by hand: three charts beside each other, each with its axes from zero.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "support/figure.hpp"

namespace bankml::bench {
namespace {

constexpr double kWidth = 380, kHeight = 300, kLeft = 64, kRight = 16, kTop = 56, kBottom = 48;
constexpr const char* kColours[] = {"#1b6ca8", "#c8501e", "#2e8b57", "#7b4fa3", "#a8871b", "#555555"};

struct Line {
  std::string name;
  std::map<int, const Figure*> points;  // by tokens
};

// The smallest of 1, 2, 5, 10, 20 ... that cuts [0, most] into at most five steps.
double step_for(double most) {
  double step = std::pow(10.0, std::floor(std::log10(most)) - 1);
  for (const double factor : {1.0, 2.0, 5.0, 10.0, 20.0}) {
    if (most / (step * factor) <= 5) return step * factor;
  }
  return most;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::vector<Line> lines_of(const std::vector<Figure>& figures, const std::string& what) {
  std::vector<Line> lines;
  for (const Figure& f : figures) {
    if (f.what != what) continue;
    std::string name = fmt::format("{} threads, kv {}", f.threads, f.kv);
    if (what == "decode") name += fmt::format(", {} at once", f.batch);
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return line.name == name; });
    Line& line = found != lines.end() ? *found : lines.emplace_back(Line{name, {}});
    line.points[f.tokens] = &f;
  }
  return lines;
}

std::string chart(const std::vector<Line>& lines, const std::string& title, double at) {
  double most_x = 1, most_y = 1e-6;
  for (const Line& line : lines) {
    for (const auto& [tokens, figure] : line.points) {
      most_x = std::max(most_x, static_cast<double>(tokens));
      most_y = std::max(most_y, figure->highest());
    }
  }
  const double plot_width = kWidth - kLeft - kRight, plot_height = kHeight - kTop - kBottom;
  const auto x_of = [&](double tokens) { return at + kLeft + tokens / most_x * plot_width; };
  const auto y_of = [&](double value) { return kTop + plot_height - value / most_y * plot_height; };
  std::string out = fmt::format("<text x='{}' y='44' font-weight='bold'>{}</text>\n", at + kLeft, title);
  const double step_x = step_for(most_x), step_y = step_for(most_y);
  for (double x = 0; x <= most_x * 1.001; x += step_x) {
    out +=
        fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{:g}</text>\n", x_of(x), kHeight - kBottom + 16, x);
  }
  for (double y = 0; y <= most_y * 1.001; y += step_y) {
    out += fmt::format("<line x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}' stroke='#ddd'/>\n", x_of(0), x_of(most_x),
                       y_of(y), y_of(y));
    out += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{:g}</text>\n", x_of(0) - 6, y_of(y) + 4, y);
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const char* colour = kColours[i % std::size(kColours)];
    std::string points;
    for (const auto& [tokens, f] : lines[i].points) {
      const double x = x_of(tokens), y = y_of(f->median());
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      out += fmt::format("<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='{3}'/>\n", x,
                         y_of(f->lowest()), y_of(f->highest()), colour);
      out += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}'/>\n", x, y, colour);
    }
    out += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.5'/>\n", points, colour);
    out += fmt::format("<text x='{:.1f}' y='{:.1f}' fill='{}'>{}</text>\n", x_of(0) + 8,
                       kTop + 12 + 14 * static_cast<double>(i), colour, escaped(lines[i].name));
  }
  return out + fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>tokens</text>\n", x_of(most_x / 2),
                           kHeight - kBottom + 34);
}

}  // namespace

std::string svg_of(const std::vector<Figure>& figures, const std::string& title) {
  struct Chart {
    const char *what, *title;
  };
  constexpr Chart kCharts[] = {
      {"prefill", "prefill, tokens/s"}, {"decode", "decode, tokens/s"}, {"switch", "switch of conversations, ms"}};
  std::string body;
  double at = 0;
  for (const Chart& one : kCharts) {
    const std::vector<Line> lines = lines_of(figures, one.what);
    if (lines.empty()) continue;
    body += chart(lines, one.title, at);
    at += kWidth;
  }
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}' "
      "font-family='sans-serif' font-size='11'>\n<rect width='{0}' height='{1}' fill='white'/>\n"
      "<text x='{2}' y='20' font-size='13'>{3}</text>\n{4}</svg>\n",
      std::max(at, kWidth), kHeight, kLeft, escaped(title), body);
}

}  // namespace bankml::bench
