#pragma once
// Where a step ends the part of a prompt that it evaluates (docs/prompt-cache.md, 3.4 and 4). How many rows a forward
// pass has is part of the arithmetic, so the borders decide the answer.
#include <cstdint>

namespace bankml {

struct PromptCut {
  std::int64_t end = 0;    // tokens of the prompt that are done after the step
  bool ends_step = false;  // nothing else joins this step
};

// The step of a prompt of `total` tokens of which `done` are evaluated, with room for `room` more rows. `cut`: models
// with a window stop short before the last rows, where llama-server keeps a checkpoint.
PromptCut cut_prompt(std::int64_t total, std::int64_t done, std::int64_t room, int batch, int ubatch,
                     bool cut) noexcept;

}  // namespace bankml
