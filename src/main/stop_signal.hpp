#pragma once
// SIGINT and SIGTERM of a daemon that serves: the first one asks for an orderly stop, the second one ends the process
// at once.
#include <semaphore.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace bankml {

// From its construction on the two signals no longer kill the process. One object per process.
class StopSignal {
 public:
  StopSignal() {
    ::sem_init(&asked(), 0, 0);
    struct sigaction action {};
    action.sa_handler = &StopSignal::handle;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
  }

  // Blocks the calling thread until the first signal.
  void wait() const {
    while (::sem_wait(&asked()) != 0 && errno == EINTR) {
    }
  }

 private:
  // Only what is safe in a signal handler.
  static void handle(int) {
    static volatile std::sig_atomic_t signals = 0;
    if (signals != 0) std::_Exit(EXIT_FAILURE);
    signals = 1;
    ::sem_post(&asked());
  }
  static sem_t& asked() {
    static sem_t semaphore;
    return semaphore;
  }
};

}  // namespace bankml
