#include "device/cuda/pass_graphs.hpp"

#include <algorithm>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"

namespace KERNEL_NAMESPACE {
namespace {

// Decode of one to sixteen rows, with and without logits, and some ends of prompts.
constexpr std::size_t kMaxPasses = 64;

}  // namespace

void PassGraphs::begin(Stream& stream) {
  if (stream_ == &stream) return;
  if (stream_) {
    Stream& other = *stream_;
    set_deferred(other, nullptr);
    flush(other);
  }
  set_deferred(stream, this);
  stream_ = &stream;
  state_ = State::following;
}

void PassGraphs::end() {
  stream_ = nullptr;
  state_ = State::idle;
  followed_ = nullptr;
  matched_ = 0;
  recorded_.clear();
}

// Whether the pass begins with the launches that are held back.
bool PassGraphs::begins_alike(const Pass& pass) const {
  if (&pass == followed_ || matched_ == 0) return true;
  const auto& held = followed_->launches;
  return pass.launches.size() >= matched_ &&
         std::equal(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(matched_), pass.launches.begin(),
                    [](const auto& a, const auto& b) { return a->same(*b); });
}

bool PassGraphs::follow(const Launch& call) {
  const auto goes_on = [&](const Pass& pass) {
    return matched_ < pass.launches.size() && pass.launches[matched_]->same(call);
  };
  if (!followed_ || !goes_on(*followed_)) {
    const auto other = std::find_if(passes_.begin(), passes_.end(),
                                    [&](const auto& pass) { return goes_on(*pass) && begins_alike(*pass); });
    if (other == passes_.end()) return false;
    followed_ = other->get();
  }
  ++matched_;
  return true;
}

// Launches what was held back.
void PassGraphs::launch_held() {
  const std::size_t n = std::exchange(matched_, 0);
  if (n == 0) return;
  state_ = State::given_up;  // unless all goes well
  for (std::size_t i = 0; i < n; ++i) followed_->launches[i]->run(*stream_);
  recorded_.assign(followed_->launches.begin(), followed_->launches.begin() + static_cast<std::ptrdiff_t>(n));
}

void PassGraphs::leave() {
  launch_held();
  state_ = State::recording;
}

void PassGraphs::give_up() {
  launch_held();
  state_ = State::given_up;
  recorded_.clear();
}

void PassGraphs::flush(Stream& stream) {
  if (state_ == State::recording) remember(std::move(recorded_));
  if (state_ == State::following && matched_ > 0) {
    const auto whole = std::find_if(passes_.begin(), passes_.end(), [&](const auto& pass) {
      return pass->launches.size() == matched_ && begins_alike(*pass);
    });
    Pass* const pass = whole != passes_.end() ? whole->get() : nullptr;
    try {
      if (pass) {
        run_pass(*pass, stream);
      } else {
        launch_held();
        remember(std::move(recorded_));
      }
    } catch (...) {
      end();
      throw;
    }
  }
  end();
}

void PassGraphs::run_pass(Pass& pass, Stream& stream) {
  pass.last_used = ++clock_;
  if (!pass.graph && pass.capturable) capture(pass, stream);
  if (pass.graph) return pass.graph->launch(stream);
  for (const auto& launch : pass.launches) launch->run(stream);
}

// Launches that fail do so as outside a capture. A graph that can't be made costs speed only.
void PassGraphs::capture(Pass& pass, Stream& stream) {
  begin_capture(stream);
  try {
    for (const auto& launch : pass.launches) launch->run(stream);
  } catch (...) {
    try {
      end_capture(stream);
    } catch (const Error&) {  // of a capture that is void
    }
    throw;
  }
  try {
    pass.graph = end_capture(stream);
  } catch (const Error& error) {
    pass.capturable = false;
    log_warning("kernels are launched one by one, since a graph of {} of them can't be made: {}", pass.launches.size(),
                error.what());
  }
}

void PassGraphs::remember(Launches launches) {
  if (launches.empty()) return;
  if (passes_.size() == kMaxPasses) {
    passes_.erase(std::min_element(passes_.begin(), passes_.end(),
                                   [](const auto& a, const auto& b) { return a->last_used < b->last_used; }));
  }
  auto pass = std::make_unique<Pass>();
  pass->launches = std::move(launches);
  pass->last_used = ++clock_;
  passes_.push_back(std::move(pass));
}

}  // namespace KERNEL_NAMESPACE
