#pragma once
// Who is connected and what is being answered.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "bankml/server/server.hpp"

namespace bankml {

// Counts open connections, in all and by client address. Any thread.
class ConnectionCounter {
 public:
  // A connection's place, given back when it is destroyed. Invalid if there was none.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(ConnectionCounter* counter, std::string address) : counter_(counter), address_(std::move(address)) {}
    Ticket(Ticket&& other) noexcept
        : counter_(std::exchange(other.counter_, nullptr)), address_(std::move(other.address_)) {}
    Ticket& operator=(Ticket&& other) noexcept {
      std::swap(counter_, other.counter_);
      std::swap(address_, other.address_);
      return *this;
    }
    ~Ticket() {
      if (counter_ != nullptr) counter_->leave(address_);
    }
    explicit operator bool() const noexcept { return counter_ != nullptr; }

   private:
    ConnectionCounter* counter_ = nullptr;
    std::string address_;
  };

  // `address`: "" for clients that have none (UNIX sockets): only all connections are counted then. The counter
  // outlives the ticket.
  Ticket enter(const std::string& address, const ServerLimits& limits) {
    std::string own = address;  // nothing is counted if there is no memory for it
    const std::lock_guard lock(mutex_);
    if (limits.connections > 0 && open_ >= limits.connections) return refused();
    if (!address.empty()) {
      int& of_address = by_address_[address];
      if (limits.connections_per_address > 0 && of_address >= limits.connections_per_address) return refused();
      ++of_address;
    }
    ++open_;
    return {this, std::move(own)};
  }
  int open() const {
    const std::lock_guard lock(mutex_);
    return open_;
  }
  std::uint64_t refusals() const {
    const std::lock_guard lock(mutex_);
    return refusals_;
  }

 private:
  Ticket refused() {
    ++refusals_;
    return {};
  }
  void leave(const std::string& address) {
    const std::lock_guard lock(mutex_);
    --open_;
    const auto found = by_address_.find(address);
    if (found != by_address_.end() && --found->second <= 0) by_address_.erase(found);
  }

  mutable std::mutex mutex_;
  std::map<std::string, int> by_address_;
  int open_ = 0;
  std::uint64_t refusals_ = 0;
};

// Counts the bytes of all bodies that are being received or read. Any thread.
class BodyCounter {
 public:
  // Those of one body, given back when it is destroyed.
  class Share {
   public:
    explicit Share(BodyCounter& counter) : counter_(counter) {}
    ~Share() { counter_.bytes_ -= bytes_; }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Now the body has so many; false if all together would have more than `limit`: then it has as many as before.
    bool grow_to(std::int64_t bytes, std::int64_t limit) noexcept {
      const std::int64_t more = bytes - bytes_;
      if (counter_.bytes_.fetch_add(more) + more > limit) {
        counter_.bytes_ -= more;
        return false;
      }
      bytes_ = bytes;
      return true;
    }

   private:
    BodyCounter& counter_;
    std::int64_t bytes_ = 0;
  };

 private:
  std::atomic<std::int64_t> bytes_ = 0;
};

// Counts the requests that are being answered, and lets one wait for the last of them. Any thread.
class Activity {
 public:
  class Scope {
   public:
    explicit Scope(Activity& activity) : activity_(activity) { activity_.change(1); }
    ~Scope() { activity_.change(-1); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Activity& activity_;
  };

  bool wait_until_none(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return none_.wait_for(lock, patience, [&] { return running_ == 0; });
  }

 private:
  void change(int by) {
    const std::lock_guard lock(mutex_);
    running_ += by;
    if (running_ == 0) none_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable none_;
  int running_ = 0;
};

}  // namespace bankml
