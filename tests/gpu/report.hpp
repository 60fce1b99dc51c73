#pragma once
// What gpu_check finds: checks that pass or don't, and figures beside what the device could do.
#include <string>
#include <vector>

namespace bankml::gpu {

class Report {
 public:
  explicit Report(std::string device) : device_(std::move(device)) {}

  void check(int part, std::string name, bool passed, std::string detail);
  // `limit` in the same unit, 0: none. `goal`: part of the limit that is aimed at, 0: none.
  void figure(std::string name, double value, std::string unit, double limit = 0, double goal = 0);
  void note(std::string text);  // what was left out, and why

  int failures() const;
  std::string table() const;
  std::string json() const;

 private:
  struct Check {
    int part;
    std::string name;
    bool passed;
    std::string detail;
  };
  struct Figure {
    std::string name;
    double value;
    std::string unit;
    double limit, goal;
  };
  std::string device_;
  std::vector<Check> checks_;
  std::vector<Figure> figures_;
  std::vector<std::string> notes_;
};

}  // namespace bankml::gpu
