#pragma once
// The one exception type of the daemon. An operation that can't be done throws it where it ends; kinds become HTTP
// statuses in one function of the server layer and exit messages in main.
#include <stdexcept>
#include <string>
#include <utility>

namespace bankml {

enum class ErrorKind {
  invalid_request,   // the caller's input is wrong: what was expected and what came
  not_found,         // no such route, slot or file
  unsupported,       // right input for a feature that is off or not built
  busy,              // try again later
  context_overflow,  // the prompt does not fit into the context
  out_of_memory,
  device,
  io,
  internal,
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace bankml
