#include "server/metered_service.hpp"

#include <fmt/core.h>

#include <chrono>

#include "bankml/base/error.hpp"

namespace bankml {

// One generation from its arrival to its end; called on the engine's thread. What it counts as waiting, it counts back
// exactly once.
class MeteredService::Course {
 public:
  Course(RequestMetrics& metrics, std::shared_ptr<std::atomic<int>> waiting)
      : metrics_(metrics), waiting_(std::move(waiting)) {}
  ~Course() { stop_waiting(); }
  Course(const Course&) = delete;
  Course& operator=(const Course&) = delete;

  void note(const JobEvent& event) {
    const auto now = Clock::now();
    const auto since = [&](Clock::time_point start) { return std::chrono::duration<double>(now - start).count(); };
    if (std::holds_alternative<Started>(event)) {
      stop_waiting();
      metrics_.observe_queue_wait(since(arrived_));
    } else if (std::holds_alternative<Piece>(event)) {
      if (pieces_++ == 0) {
        metrics_.observe_first_token(since(arrived_));
      } else {
        metrics_.observe_next_token(since(last_piece_));
      }
      last_piece_ = now;
    } else if (const auto* done = std::get_if<Done>(&event)) {
      stop_waiting();
      metrics_.observe_tokens(done->timings.prompt_n, done->timings.predicted_n);
      metrics_.observe_end(RequestMetrics::Outcome::done);
    } else if (const auto* failed = std::get_if<Failed>(&event)) {
      stop_waiting();
      metrics_.observe_end(failed->cancelled ? RequestMetrics::Outcome::cancelled : RequestMetrics::Outcome::failed);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void stop_waiting() {
    if (std::exchange(waits_, false)) --*waiting_;
  }

  RequestMetrics& metrics_;
  std::shared_ptr<std::atomic<int>> waiting_;
  bool waits_ = true;
  int pieces_ = 0;
  const Clock::time_point arrived_ = Clock::now();
  Clock::time_point last_piece_;
};

JobSink MeteredService::metered(JobSink sink) {
  const int limit = policy_.get()->limits.queue;
  if (++*waiting_ > limit && limit > 0) {
    --*waiting_;
    metrics_.observe_end(RequestMetrics::Outcome::refused);
    throw Error(ErrorKind::busy, fmt::format("{} requests are waiting already: try again later", limit));
  }
  std::shared_ptr<Course> course;
  try {
    course = std::make_shared<Course>(metrics_, waiting_);
  } catch (...) {
    --*waiting_;
    throw;
  }
  return [course = std::move(course), sink = std::move(sink)](JobEvent&& event) {
    course->note(event);
    sink(std::move(event));
  };
}

std::vector<JobId> MeteredService::submit(std::vector<Submission> submissions) {
  for (Submission& submission : submissions) {
    for (JobSink& sink : submission.sinks) sink = metered(std::move(sink));
  }
  return engine_.submit(std::move(submissions));
}

}  // namespace bankml
