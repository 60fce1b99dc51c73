#include "engine/prompt_cut.hpp"

#include <algorithm>

namespace bankml {

PromptCut cut_prompt(std::int64_t total, std::int64_t done, std::int64_t room, int batch, int ubatch,
                     bool cut) noexcept {
  constexpr int kShortRest = 4;  // tokens after the last cut; the one before leaves a forward pass more
  const std::int64_t end = std::min(total, done + room);
  if (!cut) return {end, false};
  for (const int rest : {std::min(batch, kShortRest + ubatch), std::min(batch, kShortRest)}) {
    const std::int64_t border = total - rest;
    if (border > done && border <= end) return {border, true};
  }
  return {end, false};
}

}  // namespace bankml
