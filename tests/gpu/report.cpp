#include "gpu/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <utility>

namespace bankml::gpu {

void Report::check(int part, std::string name, bool passed, std::string detail) {
  if (!passed) fmt::print(stderr, "FAILED: part {}, {}: {}\n", part, name, detail);
  checks_.push_back({part, std::move(name), passed, std::move(detail)});
}
void Report::figure(std::string name, double value, std::string unit, double limit, double goal) {
  fmt::print(stderr, "{}: {:.4g} {}\n", name, value, unit);
  figures_.push_back({std::move(name), value, std::move(unit), limit, goal});
}
void Report::note(std::string text) {
  fmt::print(stderr, "{}\n", text);
  notes_.push_back(std::move(text));
}

int Report::failures() const {
  return static_cast<int>(
      std::count_if(checks_.begin(), checks_.end(), [](const Check& check) { return !check.passed; }));
}

std::string Report::table() const {
  std::string out = fmt::format("{}\n\n| part | checks | failed |\n|---|---|---|\n", device_);
  std::map<int, std::pair<int, int>> parts;
  for (const Check& check : checks_) {
    ++parts[check.part].first;
    parts[check.part].second += !check.passed;
  }
  for (const auto& [part, counts] : parts) out += fmt::format("| {} | {} | {} |\n", part, counts.first, counts.second);
  if (!figures_.empty()) out += "\n| figure | value | of the limit | goal |\n|---|---|---|---|\n";
  for (const Figure& f : figures_) {
    out += fmt::format("| {} | {:.4g} {} | {} | {} |\n", f.name, f.value, f.unit,
                       f.limit > 0 ? fmt::format("{:.1f} %", f.value / f.limit * 100) : "",
                       f.goal > 0 ? fmt::format("{:.0f} %", f.goal * 100) : "");
  }
  for (const Check& check : checks_) {
    if (!check.passed) out += fmt::format("\nFAILED: part {}, {}: {}", check.part, check.name, check.detail);
  }
  for (const std::string& text : notes_) out += "\n" + text;
  return out + "\n";
}

std::string Report::json() const {
  boost::json::array checks, figures, notes;
  for (const Check& c : checks_)
    checks.push_back({{"part", c.part}, {"name", c.name}, {"passed", c.passed}, {"detail", c.detail}});
  for (const Figure& f : figures_) {
    figures.push_back({{"name", f.name}, {"value", f.value}, {"unit", f.unit}, {"limit", f.limit}, {"goal", f.goal}});
  }
  for (const std::string& text : notes_) notes.push_back(boost::json::string(text));
  return boost::json::serialize(boost::json::object{
      {"device", device_}, {"failures", failures()}, {"checks", checks}, {"figures", figures}, {"notes", notes}});
}

}  // namespace bankml::gpu
