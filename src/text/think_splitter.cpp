#include "bankml/text/think_splitter.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "bankml/base/error.hpp"
#include "text/partial_tag.hpp"

namespace bankml {
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";

std::string_view without_leading_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

// A tag and the white space behind it.
std::pair<std::string_view, std::string_view> cut_tag(std::string_view text) {
  text = without_leading_space(text);
  const std::size_t end = text.find_last_not_of(kSpace) + 1;
  return {text.substr(0, end), text.substr(end)};
}

}  // namespace

ThinkSplitter::ThinkSplitter(const ThinkTags& tags, std::string_view generation_prompt, Thinking thinking)
    : apart_(thinking == Thinking::apart) {
  std::tie(start_, start_space_) = cut_tag(tags.start);
  std::tie(end_, end_space_) = cut_tag(tags.end);
  if (thinking == Thinking::unparsed) generation_prompt = {};
  if (thinking != Thinking::unparsed && start_.starts_with(ChannelSplitter::kMark)) {
    channels_.emplace(generation_prompt, !apart_);
  } else if (end_.empty()) {
    state_ = State::content;
  } else if (start_.empty()) {
    state_ = apart_ ? State::reasoning : State::content;
  } else if (const std::size_t opened = generation_prompt.find(start_); opened != std::string_view::npos) {
    pending_ = generation_prompt.substr(opened);
  }
}

ThinkSplitter::Parts ThinkSplitter::add(std::string_view piece) {
  Parts parts;
  if (channels_) {
    channels_->add(piece, parts.reasoning, parts.content);
    return malformed() ? Parts{} : parts;  // of the piece that broke the chain nothing is shown
  }
  pending_ += piece;
  while (!pending_.empty() && step(parts)) {
  }
  return parts;
}

// Whether the state changed, so that there may be more to do.
bool ThinkSplitter::step(Parts& parts) {
  switch (state_) {
    case State::before:
      return find_start();
    case State::start_space:
      return skip_space(start_space_, State::reasoning);
    case State::reasoning:
      return read_reasoning(parts);
    case State::end_space:
      return skip_space(end_space_, State::content);
    case State::content:
      parts.content += std::exchange(pending_, {});
      return false;
  }
  return false;
}

bool ThinkSplitter::find_start() {
  const std::string_view text = without_leading_space(pending_);
  if (!apart_) {
    if (text.empty()) return false;
    pending_ = std::string(text);
    state_ = State::content;
    return true;
  }
  if (text.size() < start_.size() && start_.starts_with(text)) return false;
  const bool found = text.starts_with(start_);
  pending_ = std::string(text.substr(found ? start_.size() : 0));
  state_ = found ? State::start_space : State::content;
  return true;
}

bool ThinkSplitter::skip_space(std::string_view space, State next) {
  std::size_t n = 0;
  while (skipped_ < space.size() && n < pending_.size() && pending_[n] == space[skipped_]) ++skipped_, ++n;
  pending_.erase(0, n);
  if (skipped_ < space.size() && pending_.empty()) return false;
  skipped_ = 0;
  state_ = next;
  return true;
}

bool ThinkSplitter::read_reasoning(Parts& parts) {
  const std::size_t found = pending_.find(end_);
  const bool ends = found != std::string::npos;
  const std::size_t certain = ends ? found : pending_.size() - partial_tag(pending_, end_);
  const std::string_view text = std::string_view(pending_).substr(0, certain);
  reasons_ = reasons_ || text.find_first_not_of(kSpace) != std::string_view::npos;
  if (reasons_) parts.reasoning += text;
  if (ends) {
    state_ = State::end_space;
    pending_.erase(0, found + end_.size());
  } else if (reasons_) {
    pending_.erase(0, certain);
  }
  return ends;
}

ThinkSplitter::Parts split_thinking(ThinkSplitter splitter, std::string_view text) {
  ThinkSplitter::Parts parts = splitter.add(text);
  check_well_formed(splitter);
  if (parts.reasoning.empty() && parts.content.empty()) parts.content = text;
  return parts;
}

void check_well_formed(const ThinkSplitter& splitter) {
  if (!splitter.malformed()) return;
  throw Error(ErrorKind::internal, "the model's answer is no chain of messages on channels, as its template has them");
}

}  // namespace bankml
