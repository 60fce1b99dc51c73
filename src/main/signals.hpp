#pragma once
// Signals of a daemon that serves. SIGINT and SIGTERM: the first one asks for an orderly stop, the second one ends the
// process at once. SIGHUP asks for a reload.
#include <semaphore.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace bankml {

// From its construction on these signals no longer kill the process. One object per process.
class Signals {
 public:
  enum class Event { stop, reload };

  Signals() {
    ::sem_init(&came(), 0, 0);
    struct sigaction action {};
    action.sa_handler = &Signals::handle;
    action.sa_flags = SA_RESTART;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
  }

  // Blocks the calling thread until the next signal; a stop that has been asked for comes first.
  Event wait() const {
    while (::sem_wait(&came()) != 0 && errno == EINTR) {
    }
    return stop_asked() != 0 ? Event::stop : Event::reload;
  }

 private:
  // Only what is safe in a signal handler.
  static void handle(int number) {
    const int error = errno;
    if (number != SIGHUP) {
      if (stop_asked() != 0) std::_Exit(EXIT_FAILURE);
      stop_asked() = 1;
    }
    ::sem_post(&came());
    errno = error;
  }
  static sem_t& came() {
    static sem_t semaphore;
    return semaphore;
  }
  static volatile std::sig_atomic_t& stop_asked() {
    static volatile std::sig_atomic_t asked = 0;
    return asked;
  }
};

}  // namespace bankml
