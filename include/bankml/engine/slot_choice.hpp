#pragma once
// Which slot serves a prompt, and whether its content goes to the prompt cache first (docs/prompt-cache.md, section 1).
#include <cstdint>
#include <optional>
#include <span>

#include "bankml/text/tokenizer.hpp"

namespace bankml {

struct SlotView {
  std::span<const TokenId> tokens;  // what the slot holds
  bool busy = false;
  std::int64_t released = -1;  // monotonic time of the last release, -1: never used
};

struct SlotChoice {
  enum class By { none, id, similarity, least_recent };
  std::optional<std::size_t> slot;  // index; none: all are busy, or the wanted one is: the request waits
  By by = By::none;
  // Save the slot, then look for a better entry. The caller adds its own conditions: a prompt cache and a completion
  // task.
  bool due = false;
  float similarity =
      0.0f;           // part of the prompt that the slot holds, for By::similarity; otherwise that of the best match
  float keep = 0.0f;  // part of the slot that the prompt uses; NaN for an empty slot chosen by id
};

// `id_slot`: -1 for any, other values wrap modulo the number of slots. `threshold`: the similarity that a slot must
// exceed to be chosen for it, 0 turns the search off. Slots are looked at in the order of their ids, which are their
// indices.
SlotChoice choose_slot(std::span<const SlotView> slots, std::span<const TokenId> prompt, std::int64_t id_slot,
                       float threshold) noexcept;

}  // namespace bankml
