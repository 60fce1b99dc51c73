// A library to preload: the n-th memory, file or socket call of the process fails, once a test has asked for it through
// a file that both have mapped (faults_test.py writes it). Until then, and afterwards, all calls are what they were.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// glibc's own functions, which need no look-up: that would allocate.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

enum Kind : std::uint32_t { kNone, kMemory, kFile, kSocket };

// The layout is known to faults_test.py.
struct Control {
  std::atomic<std::uint32_t> kind;         // of the calls that are counted; written last
  std::atomic<std::uint32_t> shorten;      // 1: writes are cut short instead of failing, other calls are left alone
  std::atomic<std::int64_t> remaining;     // the call that brings it to 0 fails
  std::atomic<std::uint64_t> counted;      // calls since it was armed
  std::atomic<std::uint32_t> failed;       // 1 once one has failed
  std::atomic<std::uint32_t> repetitions;  // calls that fail after that one
};
static_assert(sizeof(Control) == 32);

Control* map_control() {
  const char* path = std::getenv("BANKML_FAULTS");
  if (path == nullptr) return nullptr;
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* at = ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return at == MAP_FAILED ? nullptr : static_cast<Control*>(at);
}

std::atomic<Control*> mapped = nullptr;
bool traces = false;  // whether the stack of a failing call goes to stderr

__attribute__((constructor)) void start() {
  traces = std::getenv("BANKML_FAULTS_TRACE") != nullptr;
  mapped.store(map_control());
}

void print_stack() {
  void* frames[64];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, 64), STDERR_FILENO);
}

// Whether this call is the one that fails.
bool due(Kind kind, bool is_write = false) {
  Control* control = mapped.load(std::memory_order_relaxed);
  if (control == nullptr || control->kind.load(std::memory_order_acquire) != kind) return false;
  if (control->shorten.load() != 0 && !is_write) return false;
  control->counted.fetch_add(1);
  const std::int64_t left = control->remaining.fetch_sub(1) - 1;
  if (left > 0 || left < -static_cast<std::int64_t>(control->repetitions.load())) return false;
  control->failed.store(1);
  if (traces) print_stack();
  return true;
}

bool shortens() {
  return mapped.load()->shorten.load() != 0;
}

// The function that would have been called without this library.
void* next(std::atomic<void*>& cached, const char* name) {
  void* function = cached.load(std::memory_order_relaxed);
  if (function == nullptr) cached.store(function = ::dlsym(RTLD_NEXT, name));
  return function;
}

#define NEXT(name)                              \
  reinterpret_cast<decltype(&::name)>([] {      \
    static std::atomic<void*> cached = nullptr; \
    return next(cached, #name);                 \
  }())

Kind kind_of(int fd) {
  const int saved = errno;
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  errno = saved;
  if (!known) return kNone;
  return S_ISREG(status.st_mode) || S_ISDIR(status.st_mode) ? kFile : S_ISSOCK(status.st_mode) ? kSocket : kNone;
}

template <class Result>
Result failure(int error, Result result) {
  errno = error;
  return result;
}

// What a call that reads or writes does when it is due; `real(n)` is the call itself for n bytes at most.
template <class Real>
ssize_t transfer(int fd, bool is_write, std::size_t size, Real&& real) {
  const Kind kind = kind_of(fd);
  if (kind == kNone || !due(kind, is_write)) return real(size);
  if (shortens() && size > 1) return real(size / 2);
  if (shortens()) return real(size);
  return failure(kind == kSocket ? ECONNRESET : is_write ? ENOSPC : EIO, ssize_t{-1});
}

std::size_t size_of(const msghdr& message) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) size += message.msg_iov[i].iov_len;
  return size;
}

// The message's first buffer alone, at most so many bytes of it, if it is to be cut short.
template <class Real>
ssize_t transfer_message(int fd, bool is_write, const msghdr& message, Real&& real) {
  const std::size_t whole = size_of(message);
  return transfer(fd, is_write, whole, [&](std::size_t size) {
    if (size == whole || message.msg_iovlen == 0) return real(message);
    iovec first = message.msg_iov[0];
    first.iov_len = first.iov_len < size ? first.iov_len : size;
    msghdr cut = message;
    cut.msg_iov = &first;
    cut.msg_iovlen = 1;
    return real(cut);
  });
}

}  // namespace

extern "C" {

// --- memory ---

void* malloc(std::size_t size) {
  return due(kMemory) ? failure<void*>(ENOMEM, nullptr) : __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  return due(kMemory) ? failure<void*>(ENOMEM, nullptr) : __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  return due(kMemory) ? failure<void*>(ENOMEM, nullptr) : __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  return due(kMemory) ? failure<void*>(ENOMEM, nullptr) : __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  if (due(kMemory)) return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, std::size_t size, int protection, int flags, int fd, off_t offset) {
  if ((flags & MAP_ANONYMOUS) != 0 && due(kMemory)) return failure(ENOMEM, MAP_FAILED);
  return NEXT(mmap)(address, size, protection, flags, fd, offset);
}

// --- files ---

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return due(kFile) ? failure(EMFILE, -1) : NEXT(open)(path, flags, mode);
}
int mkostemp(char* name, int flags) {
  return due(kFile) ? failure(ENOSPC, -1) : NEXT(mkostemp)(name, flags);
}
int rename(const char* from, const char* to) {
  return due(kFile) ? failure(EIO, -1) : NEXT(rename)(from, to);
}
int fsync(int fd) {
  return due(kFile) ? failure(EIO, -1) : NEXT(fsync)(fd);
}
ssize_t pread(int fd, void* out, std::size_t size, off_t offset) {
  return transfer(fd, false, size, [&](std::size_t n) { return NEXT(pread)(fd, out, n, offset); });
}
// What the log is written with.
std::size_t fwrite(const void* data, std::size_t size, std::size_t count, FILE* file) {
  return due(kFile) ? failure(ENOSPC, std::size_t{0}) : NEXT(fwrite)(data, size, count, file);
}
int fflush(FILE* file) {
  return due(kFile) ? failure(ENOSPC, EOF) : NEXT(fflush)(file);
}

// --- files and sockets ---

ssize_t read(int fd, void* out, std::size_t size) {
  return transfer(fd, false, size, [&](std::size_t n) { return NEXT(read)(fd, out, n); });
}
ssize_t write(int fd, const void* data, std::size_t size) {
  return transfer(fd, true, size, [&](std::size_t n) { return NEXT(write)(fd, data, n); });
}

// --- sockets ---

int accept(int fd, sockaddr* address, socklen_t* length) {
  return due(kSocket) ? failure(EMFILE, -1) : NEXT(accept)(fd, address, length);
}
int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  return due(kSocket) ? failure(EMFILE, -1) : NEXT(accept4)(fd, address, length, flags);
}
int epoll_ctl(int poll, int operation, int fd, epoll_event* event) {
  const bool counts = operation == EPOLL_CTL_ADD && kind_of(fd) == kSocket;
  return counts && due(kSocket) ? failure(ENOSPC, -1) : NEXT(epoll_ctl)(poll, operation, fd, event);
}
ssize_t recv(int fd, void* out, std::size_t size, int flags) {
  return transfer(fd, false, size, [&](std::size_t n) { return NEXT(recv)(fd, out, n, flags); });
}
ssize_t send(int fd, const void* data, std::size_t size, int flags) {
  return transfer(fd, true, size, [&](std::size_t n) { return NEXT(send)(fd, data, n, flags); });
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return transfer(fd, false, 0, [&](std::size_t) { return NEXT(recvmsg)(fd, message, flags); });
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return transfer_message(fd, true, *message, [&](const msghdr& m) { return NEXT(sendmsg)(fd, &m, flags); });
}

}  // extern "C"
