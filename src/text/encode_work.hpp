#pragma once
// What one call of Tokenizer::encode carries from fragment to fragment.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <forward_list>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/text/tokenizer.hpp"
#include "text/pair_merger.hpp"
#include "text/vocabulary.hpp"

namespace bankml {

// Where the ids of runs of text that came up before are: 1 MB of English and C++ is 390 thousand runs, 15 thousand of
// them different, and finding one again takes a tenth of the time of merging it. A run displaces the one that had its
// slot: no text makes the table large or slow.
class RememberedRuns {
 public:
  explicit RememberedRuns(std::size_t text_bytes)
      : slots_(std::bit_floor(std::clamp<std::size_t>(text_bytes / kBytesPerSlot, 1, kMostSlots))) {}

  // Appends the ids of `run`: a copy from `out` itself, or what encode() appends, which must depend on the run alone.
  // The run's bytes and the ids in `out` must outlive this object.
  template <class Encode>
  void append(std::string_view run, std::vector<TokenId>& out, Encode&& encode) {
    Slot& slot = slots_[TokenTextHash{}(run) & (slots_.size() - 1)];
    if (slot.run == run) {
      for (std::uint32_t i = 0; i < slot.count; ++i) out.push_back(out[slot.first + i]);
      return;
    }
    const std::size_t first = out.size();
    encode();
    slot = {run, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(out.size() - first)};
  }

 private:
  static constexpr std::size_t kBytesPerSlot = 8;
  static constexpr std::size_t kMostSlots = 65536;  // 1.5 MiB, for a text of 512 KiB or more
  struct Slot {
    std::string_view run;  // empty: free
    std::uint32_t first, count;
  };

  std::vector<Slot> slots_;
};

struct EncodeWork {
  explicit EncodeWork(std::size_t text_bytes) : runs(text_bytes) {}

  std::vector<TokenId> out;
  PairMerger merger;
  RememberedRuns runs;
  std::forward_list<std::string> respelled;  // fragments as the model spells them: `runs` refers to them
};

}  // namespace bankml
