#include "bankml/engine/slot_choice.hpp"

#include "bankml/engine/prompt_cache.hpp"

namespace bankml {

SlotChoice choose_slot(std::span<const SlotView> slots, std::span<const TokenId> prompt, std::int64_t id_slot,
                       float threshold) noexcept {
  constexpr std::int64_t kAnySlot = -1;
  constexpr float kHalf = 0.5f;
  SlotChoice choice;
  if (slots.empty()) return choice;
  if (id_slot != kAnySlot) {
    choice.slot = static_cast<std::uint64_t>(id_slot) % slots.size();
    choice.by = SlotChoice::By::id;
  }
  const auto n = static_cast<float>(prompt.size());
  if (threshold != 0.0f) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      // The id as it was given: one that wraps matches no slot here, which makes the wrapped slot due below.
      if (id_slot != kAnySlot && id_slot != static_cast<std::int64_t>(i)) continue;
      if (slots[i].busy || slots[i].tokens.empty()) continue;
      const float similarity = static_cast<float>(lcp(slots[i].tokens, prompt)) / n;
      if (similarity > choice.similarity && similarity > threshold) {
        choice.similarity = similarity;
        choice.slot = i;
        if (id_slot == kAnySlot) choice.by = SlotChoice::By::similarity;
      }
    }
    if (choice.slot) {
      // There and back through the similarity, as the peer does: an exact half may come out just below (example S7).
      choice.keep = (choice.similarity * n) / static_cast<float>(slots[*choice.slot].tokens.size());
      choice.due = choice.keep < kHalf;
    }
  }
  if (!choice.slot) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].busy) continue;
      if (!choice.slot || slots[i].released <= slots[*choice.slot].released) choice.slot = i;
    }
    if (choice.slot) {
      choice.by = SlotChoice::By::least_recent;
      choice.due = true;
    }
  }
  if (choice.slot && slots[*choice.slot].busy) {
    choice.slot.reset();
    choice.due = false;
  }
  return choice;
}

}  // namespace bankml
