#pragma once
// What a benchmark run found, and how it is shown.
#include <algorithm>
#include <string>
#include <vector>

namespace bankml::bench {

// One measured quantity: all its runs, what was measured under which settings, and what the machine could do at best.
struct Figure {
  std::string what;   // prefill, decode, load, save, restore, switch, or a limit of the machine
  std::string model;  // empty for limits of the machine
  std::string kv;     // type of the KV cache
  int threads = 0;
  int tokens = 0;    // prompt length, or tokens held
  int batch = 0;     // rows of a pass, or sequences decoded together
  std::string unit;  // tokens/s, GB/s, GMAC/s: more is better; ms: less is better
  std::vector<double> runs;
  double limit = 0;  // in the same unit: what the machine's own limit would give; 0: none applies
  std::string limit_name;

  bool less_is_better() const { return unit == "ms"; }
  double median() const;
  double lowest() const { return *std::min_element(runs.begin(), runs.end()); }
  double highest() const { return *std::max_element(runs.begin(), runs.end()); }
  // Of what the limit allows, the part that was reached; 0 without one.
  double share() const;
};

std::string table_of(const std::vector<Figure>& figures);
std::string json_of(const std::vector<Figure>& figures, const std::string& machine);
std::string csv_of(const std::vector<Figure>& figures);
// Prefill and decode speed and the cost of a switch against tokens, a line for each setting.
std::string svg_of(const std::vector<Figure>& figures, const std::string& title);

}  // namespace bankml::bench
