#pragma once
// What ThreadSanitizer, AddressSanitizer and Valgrind have to be told about fibers and about the memory of blocks. All
// of it is empty in a plain build. HOSTDEV_TSAN: the program runs under ThreadSanitizer while the scheduler itself is
// not instrumented.
#include <cstddef>
#include <cstdint>

#ifdef HOSTDEV_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_include(<valgrind/memcheck.h>) && !defined(HOSTDEV_TSAN) && !defined(__SANITIZE_ADDRESS__)
#define HOSTDEV_MEMCHECK  // costs nothing outside Valgrind
#include <valgrind/memcheck.h>
#endif

namespace bankml::host::sanitizer {

#ifdef HOSTDEV_TSAN
inline constexpr bool kThread = true;
inline void acquire(const void* address) {
  __tsan_acquire(const_cast<void*>(address));
}
inline void release(const void* address) {
  __tsan_release(const_cast<void*>(address));
}
inline void* current_fiber() {
  return __tsan_get_current_fiber();
}
inline void* create_fiber() {
  return __tsan_create_fiber(0);
}
inline void destroy_fiber(void* fiber) {
  __tsan_destroy_fiber(fiber);
}
inline void enter_fiber(void* fiber) {
  __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
}
// Accesses in between are nobody's.
struct Ignore {
  Ignore() {
    AnnotateIgnoreReadsBegin(nullptr, 0);
    AnnotateIgnoreWritesBegin(nullptr, 0);
  }
  ~Ignore() {
    AnnotateIgnoreWritesEnd(nullptr, 0);
    AnnotateIgnoreReadsEnd(nullptr, 0);
  }
};
#else
inline constexpr bool kThread = false;
inline void acquire(const void*) {}
inline void release(const void*) {}
inline void* current_fiber() {
  return nullptr;
}
inline void* create_fiber() {
  return nullptr;
}
inline void destroy_fiber(void*) {}
inline void enter_fiber(void*) {}
struct Ignore {
  Ignore() {}
  ~Ignore() {}
};
#endif

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAddress = true;
inline void start_switch(void** fake_stack, const void* bottom, std::size_t size) {
  __sanitizer_start_switch_fiber(fake_stack, bottom, size);
}
inline void finish_switch(void* fake_stack, const void** old_bottom, std::size_t* old_size) {
  __sanitizer_finish_switch_fiber(fake_stack, old_bottom, old_size);
}
inline void poison(const void* p, std::size_t bytes) {
  __asan_poison_memory_region(p, bytes);
}
inline void unpoison(const void* p, std::size_t bytes) {
  __asan_unpoison_memory_region(p, bytes);
}
#else
inline constexpr bool kAddress = false;
inline void start_switch(void**, const void*, std::size_t) {}
inline void finish_switch(void*, const void**, std::size_t*) {}
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
#endif

#ifdef HOSTDEV_MEMCHECK
inline void register_stack(void* low, void* high) {
  (void)VALGRIND_STACK_REGISTER(low, high);
}
inline void mark_undefined(void* p, std::size_t bytes) {
  (void)VALGRIND_MAKE_MEM_UNDEFINED(p, bytes);
}
inline void check_defined(const void* p, std::size_t bytes) {
  (void)VALGRIND_CHECK_MEM_IS_DEFINED(p, bytes);
}
#else
inline void register_stack(void*, void*) {}
inline void mark_undefined(void*, std::size_t) {}
inline void check_defined(const void*, std::size_t) {}
#endif

}  // namespace bankml::host::sanitizer
