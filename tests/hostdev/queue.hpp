#pragma once
#include <atomic>
#include <cstdint>
#include <functional>

namespace bankml::host {

// Sleeps while *word is `value`, or less long; wakes those that sleep there. Neither orders anything.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value) noexcept;
void futex_wake(const std::atomic<std::uint32_t>& word) noexcept;

struct Job {
  std::function<void()> run;
  bool after_error = false;  // runs also when the stream has failed
};

// One thread pushes, one pops. A job popped is ordered after its own push, not after later ones.
class JobQueue {
 public:
  JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;
  ~JobQueue();
  void push(Job job);
  Job pop();  // waits for one

 private:
  struct Node {
    Job job;
    std::atomic<Node*> next{nullptr};
  };
  Node* last_;   // the pusher's
  Node* first_;  // the popper's: the node whose successor comes next
  std::atomic<std::uint32_t> pushed_{0};
};

}  // namespace bankml::host
