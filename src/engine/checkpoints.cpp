#include "engine/checkpoints.hpp"

#include <algorithm>

namespace bankml {

bool checkpoint_due(std::int64_t total, std::int64_t done, std::int64_t end, int ubatch,
                    std::span<const std::int32_t> user_messages, std::int64_t newest, std::int64_t min_step) noexcept {
  const bool near_end = total < end + ubatch;
  const bool user_starts = std::find(user_messages.begin(), user_messages.end(), done) != user_messages.end();
  if (end != total && !user_starts && !near_end) return false;
  const bool last_user = user_starts && done == user_messages.back();
  return newest < 0 || last_user || near_end || done > newest + min_step;
}

}  // namespace bankml
