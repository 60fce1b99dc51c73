#pragma once
// Errors as HTTP answers (docs/http-api.md 4).
#include <boost/json/object.hpp>
#include <exception>
#include <string>

#include "bankml/base/error.hpp"
#include "bankml/engine/engine.hpp"
#include "server/http.hpp"

namespace bankml {

struct ErrorStatus {
  int code;
  const char* type;
};
ErrorStatus error_status(ErrorKind kind) noexcept;

// {"code", "message", "type"} and, for a prompt that is too long, the two counts.
boost::json::object error_object(const Failed& failure);

Response error_response(const Failed& failure);
Response error_response(ErrorKind kind, std::string message);
// The answer to what a handler threw. Call it inside a catch block.
Response current_exception_response();

}  // namespace bankml
