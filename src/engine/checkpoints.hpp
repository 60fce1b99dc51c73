#pragma once
// States that a slot can go back to although its window layers have forgotten what they need
// (docs/prompt-cache.md, 3.4). Which ones are made, kept and used decides where a prompt's evaluation starts.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace bankml {

struct CheckpointRules {
  int max = 32;                  // per slot; 0: none are made
  std::int64_t min_step = 8192;  // tokens between those that are not near the end of a prompt
};

struct CheckpointMark {
  std::int64_t tokens = 0;           // that the slot held
  std::int64_t first = 0, last = 0;  // the smallest and the largest position that its window layers held
  std::uint64_t task = 0;            // that made it
  std::uint64_t bytes = 0;           // counted for it
};

// Whether the state before a step of a prompt is worth a checkpoint. The step evaluates tokens [done, end) of `total`;
// `user_messages`: tokens at which a message of the user starts, ascending; `newest`: tokens of the newest checkpoint,
// -1: none.
bool checkpoint_due(std::int64_t total, std::int64_t done, std::int64_t end, int ubatch,
                    std::span<const std::int32_t> user_messages, std::int64_t newest, std::int64_t min_step) noexcept;

// `State` is what a checkpoint restores: copyable. Oldest first.
template <class State>
class Checkpoints {
 public:
  struct Checkpoint : CheckpointMark {
    State state;
  };

  std::size_t size() const noexcept { return list_.size(); }
  const std::vector<Checkpoint>& list() const noexcept { return list_; }
  template <class Use>
  void for_each_state(Use&& use) {
    for (Checkpoint& checkpoint : list_) use(checkpoint.state);
  }
  std::int64_t newest_tokens() const noexcept { return list_.empty() ? -1 : list_.back().tokens; }
  std::uint64_t bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const Checkpoint& c : list_) sum += c.bytes;
    return sum;
  }
  void clear() noexcept { list_.clear(); }

  // The newest one that reaches no further than `n_past` tokens and holds every position from `from` on.
  const Checkpoint* find(std::int64_t n_past, std::int64_t from) const noexcept {
    for (auto c = list_.rbegin(); c != list_.rend(); ++c) {
      if (c->last <= n_past && (c->first < from || c->first == 0)) return &*c;
    }
    return nullptr;
  }

  // Whether there was one whose state is as wanted.
  template <class Wanted>
  bool drop_oldest(Wanted&& wanted) {
    const auto found = std::find_if(list_.begin(), list_.end(), [&](const Checkpoint& c) { return wanted(c.state); });
    if (found == list_.end()) return false;
    list_.erase(found);
    return true;
  }

  void drop_beyond(std::int64_t n_past) {
    std::erase_if(list_, [&](const Checkpoint& c) { return c.last > n_past; });
  }

  // Makes room and appends: first go those of earlier tasks that are close to the one before them, then the oldest, and
  // one of the same number of tokens.
  void add(const CheckpointMark& mark, State state, const CheckpointRules& rules) {
    const std::size_t max = static_cast<std::size_t>(rules.max);
    std::size_t kept = 1;  // the oldest has none before it
    while (kept < list_.size() && list_.size() + 1 >= max) {
      const bool close = list_[kept].tokens <= list_[kept - 1].tokens + rules.min_step;
      if (close && list_[kept].task != mark.task) {
        list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(kept));
      } else {
        ++kept;
      }
    }
    if (list_.size() >= max) list_.erase(list_.begin(), list_.end() - static_cast<std::ptrdiff_t>(max - 1));
    std::erase_if(list_, [&](const Checkpoint& c) { return c.tokens == mark.tokens; });
    list_.push_back({mark, std::move(state)});
  }

 private:
  std::vector<Checkpoint> list_;
};

}  // namespace bankml
