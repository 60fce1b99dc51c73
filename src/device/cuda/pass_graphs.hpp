#pragma once
// Passes of few rows without the cost of their launches: the launches of a decode step are the same from token to
// token, since what changes lies in device memory, so they become one graph. Nobody says where a pass begins or what it
// is like: it is recognised.
//
// A pass is the launches between two other calls of its stream (copies, events, waits). One that is met for the first
// time is launched as it comes and remembered, each launch with all its arguments. Launches that begin like a
// remembered pass are held back; if they turn out to be that pass to the end, its graph runs, and if they leave it,
// those held back are launched and the rest follows them. So a graph runs in the place of exactly the launches that it
// was made of, whatever the shapes.
#include <cstdint>
#include <memory>
#include <tuple>
#include <typeinfo>
#include <vector>

#include "device/cuda/graph.hpp"
#include "namespace.hpp"

namespace KERNEL_NAMESPACE {

// Rows of a pass that is worth remembering: beyond, kernels take longer than their launches.
inline constexpr int kGraphRows = 32;

// One thread at a time.
class PassGraphs final : public Deferred {
 public:
  PassGraphs() = default;
  PassGraphs(const PassGraphs&) = delete;
  PassGraphs& operator=(const PassGraphs&) = delete;
  ~PassGraphs() override {
    if (stream_) set_deferred(*stream_, nullptr);
  }

  // kLauncher(stream, args...), a pass over `rows` rows. The arguments are values that compare equal where the launches
  // are the same. Throws what the launcher throws, also for a launch that was held back.
  template <auto kLauncher, class... Args>
  void run(Stream& stream, int rows, const Args&... args) {
    const Call<kLauncher, Args...> call(std::tuple<Args...>{args...});
    begin(stream);
    if (rows > kGraphRows) {
      give_up();
      return call.run(stream);
    }
    if (state_ == State::following && follow(call)) return;
    if (state_ == State::following) leave();
    call.run(stream);
    if (state_ == State::recording) recorded_.push_back(std::make_shared<const Call<kLauncher, Args...>>(call));
  }

  void flush(Stream& stream) override;

 private:
  class Launch {
   public:
    virtual ~Launch() = default;
    virtual void run(Stream& stream) const = 0;
    virtual bool same(const Launch& other) const = 0;
  };
  using Launches = std::vector<std::shared_ptr<const Launch>>;

  template <auto kLauncher, class... Args>
  class Call final : public Launch {
   public:
    explicit Call(std::tuple<Args...> args) : args_(std::move(args)) {}
    void run(Stream& stream) const override {
      std::apply([&](const Args&... args) { kLauncher(stream, args...); }, args_);
    }
    bool same(const Launch& other) const override {
      return typeid(other) == typeid(Call) && static_cast<const Call&>(other).args_ == args_;
    }

   private:
    std::tuple<Args...> args_;
  };

  struct Pass {
    Launches launches;
    std::unique_ptr<Graph> graph;  // from the second time on
    bool capturable = true;
    std::uint64_t last_used = 0;
  };
  // Following: the first `matched_` launches of `followed_` are held back. Recording: they are launched as they come.
  // Given up: launched and forgotten.
  enum class State { idle, following, recording, given_up };

  void begin(Stream& stream);
  bool follow(const Launch& call);
  void leave();
  void give_up();
  void launch_held();
  void end();
  void run_pass(Pass& pass, Stream& stream);
  void capture(Pass& pass, Stream& stream);
  void remember(Launches launches);
  bool begins_alike(const Pass& pass) const;

  std::vector<std::unique_ptr<Pass>> passes_;
  State state_ = State::idle;
  Stream* stream_ = nullptr;
  Pass* followed_ = nullptr;
  std::size_t matched_ = 0;
  Launches recorded_;
  std::uint64_t clock_ = 0;
};

}  // namespace KERNEL_NAMESPACE
