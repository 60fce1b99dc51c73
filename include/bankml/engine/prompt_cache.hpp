#pragma once
// The prompt cache: states of conversations that gave up their slot, found again by their tokens. Policy only: it knows
// tokens and sizes, no device, no thread, no clock. The rules are llama-server b11192's (docs/prompt-cache.md, section
// 2), because they decide at which token a prefill starts. Fractions are single precision, in the order written there.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/text/tokenizer.hpp"

namespace bankml {

// The number of equal leading tokens.
inline std::size_t lcp(std::span<const TokenId> a, std::span<const TokenId> b) noexcept {
  constexpr std::size_t kBlock = 64;  // tokens compared at once, by the C library's vector code
  const std::size_t n = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i + kBlock <= n && std::memcmp(a.data() + i, b.data() + i, kBlock * sizeof(TokenId)) == 0) i += kBlock;
  while (i < n && a[i] == b[i]) ++i;
  return i;
}

// The search for what serves a prompt best: the slot's own tokens come first, then entries are offered from the oldest
// to the newest. A running best: each winner raises both bars, so the order matters.
class BestPrefix {
 public:
  BestPrefix(std::span<const TokenId> slot, std::span<const TokenId> prompt) noexcept
      : prompt_(prompt),
        keep_(slot.empty() ? -1.0f : common(slot) / static_cast<float>(slot.size())),
        similarity_(common(slot) / static_cast<float>(prompt.size())) {}  // NaN for an empty prompt: nothing is better

  struct Fit {
    float keep, similarity;  // part of the entry, and of the prompt, that they have in common
    bool better;             // than all before
  };
  Fit offer(std::span<const TokenId> entry) noexcept {
    constexpr float kLeastKept = 0.25f;
    const float shared = common(entry);
    Fit fit{shared / static_cast<float>(entry.size()), shared / static_cast<float>(prompt_.size()), false};
    fit.better = !(fit.keep < kLeastKept) && keep_ < fit.keep && similarity_ < fit.similarity;
    if (fit.better) {
      keep_ = fit.keep;
      similarity_ = fit.similarity;
    }
    return fit;
  }

  float keep() const noexcept { return keep_; }
  float similarity() const noexcept { return similarity_; }

 private:
  float common(std::span<const TokenId> tokens) const noexcept { return static_cast<float>(lcp(tokens, prompt_)); }

  std::span<const TokenId> prompt_;
  float keep_, similarity_;
};

// What a cache did, for logs.
struct PromptCacheEvent {
  enum class Kind {
    saved,
    already_cached,     // an entry equals or extends the slot
    obsolete,           // dropped: a prefix of the slot being saved
    oversized,          // larger than the limit by itself, not kept
    evicted_bytes,      // dropped, the oldest: too many bytes
    evicted_tokens,     // dropped, the oldest: too many tokens
    evicted_memory,     // dropped, the oldest: no memory for a new one within the limit
    no_memory,          // not kept: no memory for it within the limit
    broken,             // dropped: not stored whole
    allocation_failed,  // not kept; `limit_bytes` is lower now
    candidate,          // looked at while searching; `keep` and `similarity` are set
    hit,                // moved into the slot; `keep` and `similarity` are set
    miss,
  };
  Kind kind;
  std::size_t tokens;  // of the entry; of the slot for already_cached, oversized, no_memory, allocation_failed and miss
  std::uint64_t bytes;             // of the same; 0 where it isn't known
  std::uint64_t limit_bytes;       // in force now, 0: none
  float keep = 0, similarity = 0;  // part of the entry, and of the prompt, that they have in common
  // The conversation, of the kinds that don't keep it because of a limit; valid during the call.
  std::span<const TokenId> lost = {};
};

struct PromptCacheCounters {
  std::uint64_t saved = 0, already_cached = 0, obsolete = 0, oversized = 0;
  std::uint64_t evicted_bytes = 0, evicted_tokens = 0, allocation_failures = 0;
  std::uint64_t evicted_memory = 0, no_memory = 0, broken = 0;
  std::uint64_t hits = 0, misses = 0;
};

// `State` is movable: what a slot needs to go on from the tokens of an entry. Used by one thread.
template <class State>
class PromptCache {
 public:
  struct Entry {
    std::vector<TokenId> tokens;
    std::uint64_t bytes;  // as given to save()
    State state;
  };
  using Listener = std::function<void(const PromptCacheEvent&)>;

  // `limit_bytes` and `limit_tokens` (the context's total, all slots): 0 means no limit. With both, the token limit is
  // raised to what the byte limit is estimated to hold.
  PromptCache(std::uint64_t limit_bytes, std::uint64_t limit_tokens, Listener listener = {})
      : configured_limit_(limit_bytes), limit_tokens_(limit_tokens), listener_(std::move(listener)) {}

  // Adds the slot's state as the newest entry, after dropping entries that it makes obsolete and the oldest ones until
  // it fits. `bytes` is the state's size. `make_state` is called only if the entry will be kept; if it throws
  // std::bad_alloc or Error(out_of_memory), the limit shrinks until memory returns, nothing is kept and false is
  // returned. Any other exception passes through, with nothing added. Where states take other memory than their size
  // says, `fits` tells whether there is enough of it: until then the oldest entries go. Returns whether an entry was
  // added.
  template <class MakeState>
  bool save(std::span<const TokenId> slot, std::uint64_t bytes, MakeState&& make_state) {
    return save(slot, bytes, std::forward<MakeState>(make_state), [] { return true; });
  }
  template <class MakeState, class Fits>
  bool save(std::span<const TokenId> slot, std::uint64_t bytes, MakeState&& make_state, Fits&& fits) {
    if (slot.empty()) return false;
    for (const Entry& entry : entries_) {
      if (lcp(entry.tokens, slot) == slot.size()) return tell(Event::already_cached, slot.size(), bytes), false;
    }
    if (configured_limit_ > 0 && bytes > configured_limit_) return lose(Event::oversized, slot, bytes), false;
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const auto next = std::next(entry);
      if (lcp(entry->tokens, slot) == entry->tokens.size()) drop(entry, Event::obsolete);
      entry = next;
    }
    while (limit_bytes() > 0 && !entries_.empty() && bytes_ + bytes > limit_bytes()) {
      drop(entries_.begin(), Event::evicted_bytes);
    }
    while (!fits()) {
      if (entries_.empty()) return lose(Event::no_memory, slot, bytes), false;
      drop(entries_.begin(), Event::evicted_memory);
    }
    try {
      std::list<Entry> added;
      added.push_back(Entry{{slot.begin(), slot.end()}, bytes, std::forward<MakeState>(make_state)()});
      entries_.splice(entries_.end(), added);
    } catch (const std::bad_alloc&) {
      return lower_limit(slot, bytes), false;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory) throw;
      return lower_limit(slot, bytes), false;
    }
    bytes_ += bytes;
    n_tokens_ += slot.size();
    raise_limit(bytes);
    tell(Event::saved, slot.size(), bytes);
    return true;
  }

  // Moves the entry out that serves `prompt` better than what the slot holds, if there is one: one that shares a larger
  // part of itself and a larger part of the prompt than the best so far, from the oldest to the newest, the slot coming
  // first. `restore(state)` is called before the entry leaves; if it throws, the entry stays and the exception passes
  // through.
  template <class Restore>
  std::optional<std::pair<std::vector<TokenId>, State>> take_better(std::span<const TokenId> slot,
                                                                    std::span<const TokenId> prompt,
                                                                    Restore&& restore) {
    BestPrefix search(slot, prompt);
    auto best = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      const BestPrefix::Fit fit = search.offer(entry->tokens);
      notify({Event::candidate, entry->tokens.size(), entry->bytes, limit_bytes(), fit.keep, fit.similarity});
      if (fit.better) best = entry;
    }
    if (best == entries_.end()) {
      tell(Event::miss, slot.size(), 0);
      return std::nullopt;
    }
    restore(static_cast<State&>(best->state));
    const PromptCacheEvent event{Event::hit,    best->tokens.size(), best->bytes,
                                 limit_bytes(), search.keep(),       search.similarity()};
    std::pair<std::vector<TokenId>, State> taken{std::move(best->tokens), std::move(best->state)};
    bytes_ -= best->bytes;
    n_tokens_ -= taken.first.size();
    entries_.erase(best);
    notify(event);
    return taken;
  }
  std::optional<std::pair<std::vector<TokenId>, State>> take_better(std::span<const TokenId> slot,
                                                                    std::span<const TokenId> prompt) {
    return take_better(slot, prompt, [](State&) {});
  }

  // Drops the oldest entries until the limits hold. Due after each pair of save() and take_better().
  void update() {
    while (limit_bytes() > 0 && !entries_.empty() && bytes_ > limit_bytes())
      drop(entries_.begin(), Event::evicted_bytes);
    const std::uint64_t cap = token_cap();
    while (limit_tokens_ > 0 && !entries_.empty() && n_tokens_ > cap) drop(entries_.begin(), Event::evicted_tokens);
  }

  // Drops the entries whose state was not stored whole.
  template <class Broken>
  void drop_broken(Broken&& broken) {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const auto next = std::next(entry);
      if (broken(entry->state)) drop(entry, Event::broken);
      entry = next;
    }
  }

  // Tokens that the entries may have in all now, from the bytes that a token takes on average; 0: no limit.
  std::uint64_t token_cap() const noexcept {
    if (limit_tokens_ == 0 || limit_bytes() == 0) return limit_tokens_;
    const float per_token =
        std::max(1.0f, static_cast<float>(bytes_) / static_cast<float>(std::max<std::uint64_t>(1, n_tokens_)));
    return std::max(limit_tokens_, static_cast<std::uint64_t>(static_cast<float>(limit_bytes()) / per_token));
  }

  const std::list<Entry>& entries() const noexcept { return entries_; }  // oldest first
  std::size_t len() const noexcept { return entries_.size(); }
  bool is_empty() const noexcept { return entries_.empty(); }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t n_tokens() const noexcept { return n_tokens_; }
  // In force now: below the configured one after a failed allocation.
  std::uint64_t limit_bytes() const noexcept { return pressure_ ? pressure_->limit : configured_limit_; }
  const PromptCacheCounters& counters() const noexcept { return counters_; }

 private:
  using Event = PromptCacheEvent::Kind;
  using Iterator = typename std::list<Entry>::iterator;

  // A limit that holds because an allocation failed. Each allocation that succeeds raises it, and it is lifted when the
  // cache could hold again what it held when memory ran out.
  struct Pressure {
    std::uint64_t limit, lift_at;
  };

  void lower_limit(std::span<const TokenId> slot, std::uint64_t bytes) {
    constexpr double kPartKept = 0.4;
    const std::uint64_t held = bytes_;
    pressure_ = Pressure{std::max<std::uint64_t>(1, static_cast<std::uint64_t>(kPartKept * static_cast<double>(held))),
                         std::max(held + bytes, pressure_ ? pressure_->lift_at : 0)};
    if (configured_limit_ > 0) pressure_->limit = std::min(pressure_->limit, configured_limit_);
    lose(Event::allocation_failed, slot, bytes);
    update();
  }

  void raise_limit(std::uint64_t allocated) {
    if (!pressure_) return;
    pressure_->limit += allocated;
    if (pressure_->limit >= pressure_->lift_at || (configured_limit_ > 0 && pressure_->limit >= configured_limit_)) {
      pressure_.reset();
    }
  }

  void drop(Iterator entry, Event why) {
    const std::vector<TokenId> tokens = std::move(entry->tokens);
    const std::uint64_t bytes = entry->bytes;
    bytes_ -= bytes;
    n_tokens_ -= tokens.size();
    entries_.erase(entry);
    if (why == Event::obsolete) {
      tell(why, tokens.size(), bytes);
    } else {
      lose(why, tokens, bytes);
    }
  }

  void lose(Event kind, std::span<const TokenId> tokens, std::uint64_t bytes) {
    PromptCacheEvent event{kind, tokens.size(), bytes, limit_bytes()};
    event.lost = tokens;
    notify(event);
  }

  void tell(Event kind, std::size_t tokens, std::uint64_t bytes) { notify({kind, tokens, bytes, limit_bytes()}); }

  void notify(const PromptCacheEvent& event) {
    if (std::uint64_t* counter = counter_of(event.kind)) ++*counter;
    if (listener_) listener_(event);
  }

  std::uint64_t* counter_of(Event kind) noexcept {
    switch (kind) {
      case Event::saved:
        return &counters_.saved;
      case Event::already_cached:
        return &counters_.already_cached;
      case Event::obsolete:
        return &counters_.obsolete;
      case Event::oversized:
        return &counters_.oversized;
      case Event::evicted_bytes:
        return &counters_.evicted_bytes;
      case Event::evicted_tokens:
        return &counters_.evicted_tokens;
      case Event::evicted_memory:
        return &counters_.evicted_memory;
      case Event::no_memory:
        return &counters_.no_memory;
      case Event::broken:
        return &counters_.broken;
      case Event::allocation_failed:
        return &counters_.allocation_failures;
      case Event::hit:
        return &counters_.hits;
      case Event::miss:
        return &counters_.misses;
      case Event::candidate:
        return nullptr;
    }
    return nullptr;
  }

  std::list<Entry> entries_;
  std::uint64_t bytes_ = 0, n_tokens_ = 0;
  std::uint64_t configured_limit_, limit_tokens_;
  std::optional<Pressure> pressure_;
  Listener listener_;
  PromptCacheCounters counters_;
};

}  // namespace bankml
