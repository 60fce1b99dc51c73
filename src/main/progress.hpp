#pragma once
// The percentage that stands on a terminal while a model is being loaded.
#include <unistd.h>

#include <cstdio>

namespace bankml {

// Shows nothing unless stderr is a terminal. Takes its line away at the end.
class ProgressLine {
 public:
  ProgressLine() : shown_(::isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() {
    if (percent_ >= 0) std::fputs("\r\033[K", stderr);
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(double fraction) {
    const int percent = static_cast<int>(fraction * 100.0);
    if (!shown_ || percent == percent_) return;
    percent_ = percent;
    std::fprintf(stderr, "\rloading %3d %%", percent);
  }

 private:
  bool shown_;
  int percent_ = -1;
};

}  // namespace bankml
