#pragma once
// Where a step ends the part of a prompt that it evaluates (docs/prompt-cache.md, 3.4 and 4), and how a step is divided
// into forward passes. How many rows a forward pass has is part of the arithmetic, so the borders decide the answer.
#include <cstdint>
#include <span>
#include <vector>

#include "bankml/model/model.hpp"

namespace bankml {

// Where checkpoints are wanted. None: plain attention needs no cuts.
struct CutPoints {
  bool wanted = false;                               // before the last rows of a prompt
  std::span<const std::int32_t> user_messages = {};  // and where these start, if not close behind the newest checkpoint
  std::int64_t newest = -1;                          // tokens of that one, -1: there is none
  std::int64_t min_step = 0;
};

// Tokens that are done after the next step of a prompt of `total` tokens of which `done` are evaluated, with room for
// `room` more rows. Where a cut leaves room, prompts of other slots may join the step.
std::int64_t cut_prompt(std::int64_t total, std::int64_t done, std::int64_t room, int batch, int ubatch,
                        const CutPoints& cuts) noexcept;

// Takes the rows of the next forward pass, at most `ubatch`, to the front of `rows` and returns their number. With one
// KV stream these are the first ones. With a stream for each sequence the peer takes equally many of each sequence, of
// those with successive numbers, until the shortest is used up.
std::size_t next_pass(std::span<BatchRow> rows, int ubatch, bool one_stream, std::vector<BatchRow>& scratch);

}  // namespace bankml
