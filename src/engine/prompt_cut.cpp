#include "engine/prompt_cut.hpp"

#include <algorithm>

namespace bankml {

std::int64_t cut_prompt(std::int64_t total, std::int64_t done, std::int64_t room, int batch, int ubatch,
                        const CutPoints& cuts) noexcept {
  constexpr int kShortRest = 4;  // tokens after the last cut; the one before leaves a forward pass more
  std::int64_t end = std::min(total, done + room);
  if (!cuts.wanted) return end;
  const auto end_at = [&](std::int64_t border) {
    if (border > done && border <= end) end = border;
  };
  for (const int rest : {std::min(batch, kShortRest + ubatch), std::min(batch, kShortRest)}) end_at(total - rest);
  for (const std::int32_t start : cuts.user_messages) {
    const bool far = cuts.newest < 0 || start > cuts.newest + cuts.min_step;
    if (far || start == cuts.user_messages.back()) end_at(start);
  }
  return end;
}

std::size_t next_pass(std::span<BatchRow> rows, int ubatch, bool one_stream, std::vector<BatchRow>& scratch) {
  const std::size_t most = static_cast<std::size_t>(ubatch);
  if (one_stream || rows.empty()) return std::min(rows.size(), most);
  std::int32_t first = rows.front().sequence, last = first;
  for (const BatchRow& row : rows) {
    if (row.sequence == last + 1 && static_cast<std::size_t>(last - first) + 1 < most) ++last;
  }
  std::vector<std::size_t> left(static_cast<std::size_t>(last - first) + 1);
  for (const BatchRow& row : rows) {
    if (row.sequence >= first && row.sequence <= last) ++left[static_cast<std::size_t>(row.sequence - first)];
  }
  const std::size_t share = std::min(*std::min_element(left.begin(), left.end()), most / left.size());

  // Stable: the rows of a sequence stay in order, in the pass and behind it.
  scratch.clear();
  std::vector<std::vector<BatchRow>> taken(left.size());
  for (const BatchRow& row : rows) {
    const bool in_pass = row.sequence >= first && row.sequence <= last &&
                         taken[static_cast<std::size_t>(row.sequence - first)].size() < share;
    (in_pass ? taken[static_cast<std::size_t>(row.sequence - first)] : scratch).push_back(row);
  }
  auto out = rows.begin();
  for (const auto& part : taken) out = std::copy(part.begin(), part.end(), out);
  std::copy(scratch.begin(), scratch.end(), out);
  return share * left.size();
}

}  // namespace bankml
