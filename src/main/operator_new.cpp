// The daemon's operator new: where the system has no memory, small pieces come from the reserve. Much of Asio allocates
// on ways that can't fail (a coroutine's end is posted to its strand by a destructor): there an exception would end the
// process. The forms for over-aligned types stay the library's.
#include <cstdlib>
#include <new>

#include "bankml/base/memory_reserve.hpp"

namespace {

void* allocate(std::size_t bytes) noexcept {
  void* const piece = std::malloc(bytes == 0 ? 1 : bytes);
  return piece != nullptr ? piece : bankml::allocate_reserved(bytes);
}

void* allocate_or_throw(std::size_t bytes) {
  void* const piece = allocate(bytes);
  if (piece == nullptr) throw std::bad_alloc();
  return piece;
}

void release(void* piece) noexcept {
  if (!bankml::release_reserved(piece)) std::free(piece);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}

void operator delete(void* piece) noexcept {
  release(piece);
}
void operator delete[](void* piece) noexcept {
  release(piece);
}
void operator delete(void* piece, std::size_t) noexcept {
  release(piece);
}
void operator delete[](void* piece, std::size_t) noexcept {
  release(piece);
}
void operator delete(void* piece, const std::nothrow_t&) noexcept {
  release(piece);
}
void operator delete[](void* piece, const std::nothrow_t&) noexcept {
  release(piece);
}
