#pragma once
// Bounds of a template and of one rendering. Template text comes from model files and its variables from clients:
// neither may exhaust the stack, the memory or a core. All are far above what published templates need.
#include <cstddef>
#include <cstdint>

namespace bankml::jinja {

struct Limits {
  std::size_t source = std::size_t{1} << 20;    // bytes of a template
  int depth = 200;                              // nested blocks, nested expressions, nested macro calls, nested values
  std::size_t output = std::size_t{16} << 20;   // bytes of rendered text
  std::size_t memory = std::size_t{256} << 20;  // bytes of values, scopes and copies alive in one rendering
  std::int64_t range_length = 1'000'000;        // elements of one range()
  std::int64_t loop_steps = 10'000'000;         // iterations of all loops and calls of all macros together
  std::int64_t work = 200'000'000;              // evaluated nodes and visited elements; keeps a rendering to seconds
};

// Of a trial rendering, whose conversation has a few words: a template that doesn't end must not hold up the start.
inline constexpr Limits kTrialLimits{
    .output = std::size_t{1} << 20, .memory = std::size_t{64} << 20, .loop_steps = 200'000, .work = 10'000'000};

}  // namespace bankml::jinja
