#include "server/errors.hpp"

#include <new>
#include <utility>

namespace bankml {

ErrorStatus error_status(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_request:
      return {400, "invalid_request_error"};
    case ErrorKind::context_overflow:
      return {400, "exceed_context_size_error"};
    case ErrorKind::not_found:
      return {404, "not_found_error"};
    case ErrorKind::unsupported:
      return {501, "not_supported_error"};
    case ErrorKind::busy:
      return {503, "unavailable_error"};
    case ErrorKind::out_of_memory:
    case ErrorKind::device:
    case ErrorKind::io:
    case ErrorKind::internal:
      break;
  }
  return {500, "server_error"};
}

boost::json::object error_object(const Failed& failure) {
  const ErrorStatus status = error_status(failure.kind);
  boost::json::object error{{"code", status.code}, {"message", failure.message}, {"type", status.type}};
  if (failure.kind == ErrorKind::context_overflow) {
    error["n_prompt_tokens"] = failure.prompt_tokens;
    error["n_ctx"] = failure.context;
  }
  return error;
}

Response error_response(const Failed& failure) {
  return json_response(boost::json::object{{"error", error_object(failure)}}, error_status(failure.kind).code);
}

Response error_response(ErrorKind kind, std::string message) {
  Failed failure;
  failure.kind = kind;
  failure.message = std::move(message);
  return error_response(failure);
}

Response current_exception_response() {
  try {
    throw;
  } catch (const Error& error) {
    return error_response(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return error_response(ErrorKind::out_of_memory, "out of memory");
  } catch (const std::exception& error) {
    return error_response(ErrorKind::internal, error.what());
  }
}

}  // namespace bankml
