#pragma once
// A device: its memory, its order of work, and the computations of a transformer on it.
//
// Order of work is explicit. Each call that takes a Stream queues work there and may return before it is done; work of
// one stream runs in the order queued, work of different streams only as events say. Memory named in queued work must
// stay alive until it has run. One thread at a time may use a stream.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "bankml/base/numeric.hpp"

namespace bankml {

class Ops;

// A point in a stream's order of work. Reused freely: each record() moves it.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool ready() const = 0;  // whether the recorded point has been reached; true if never recorded
  virtual void wait() const = 0;   // blocks the calling thread until then; throws Error(device) if the stream failed
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void copy_to_device(void* device, const void* host,
                              std::size_t bytes) = 0;  // `host` pinned where bytes are many
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy_on_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;  // later work of this stream waits for the event, on the device
  virtual void synchronize() = 0;  // blocks the calling thread until all queued work is done; throws Error(device)
};

// Owns a piece of memory of a device; move-only. `data()` is an address on the device (or pinned host memory).
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, std::size_t bytes, void (*release)(void* data, std::size_t bytes, void* context),
         void* context) noexcept
      : data_(data), bytes_(bytes), release_(release), context_(context) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (data_) release_(data_, bytes_, context_);
  }
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    std::swap(context_, other.context_);
  }
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  void (*release_)(void*, std::size_t, void*) = nullptr;
  void* context_ = nullptr;
};

// A weight matrix as the device keeps it: repacked or not is its own affair. rows = outputs, cols = length of a row.
// One from load_experts() is `experts` matrices of this shape.
class Weight {
 public:
  virtual ~Weight() = default;
  DType type() const noexcept { return type_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t cols() const noexcept { return cols_; }
  int experts() const noexcept { return experts_; }  // 1: a plain matrix
  // Whether the bytes given to load_weight() are still read: then they must outlive the weight.
  virtual bool uses_source() const noexcept = 0;
  virtual std::size_t device_bytes() const noexcept = 0;  // memory taken beyond the source

 protected:
  Weight(DType type, std::int64_t rows, std::int64_t cols, int experts = 1) noexcept
      : type_(type), rows_(rows), cols_(cols), experts_(experts) {}

 private:
  DType type_;
  std::int64_t rows_, cols_;
  int experts_;
};

// Which forms of an activation row a mat-mul reads: one bit per form. f32 is always kept where asked for.
enum class ActFormats : unsigned { none = 0, f32 = 1, f16 = 2, bf16 = 4, q8 = 8, q8_k = 16 };
constexpr ActFormats operator|(ActFormats a, ActFormats b) noexcept {
  return static_cast<ActFormats>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(ActFormats set, ActFormats one) noexcept {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(one)) != 0;
}
// The form that weights of this type multiply: q8 (blocks of 32 with scale and sum) for the 32-element types, q8_k for
// the 256-element ones, else the float format of the weight.
ActFormats activation_format(DType weight) noexcept;

// Scratch for rows of activations, written by an op in all its formats and read by mat-muls. Allocated once for the
// largest batch.
class Activation {
 public:
  virtual ~Activation() = default;
  std::int64_t max_rows() const noexcept { return max_rows_; }
  std::int64_t dim() const noexcept { return dim_; }
  ActFormats formats() const noexcept { return formats_; }
  virtual float* f32() noexcept = 0;  // (max_rows, dim); nullptr unless formats() has f32

 protected:
  Activation(std::int64_t max_rows, std::int64_t dim, ActFormats formats) noexcept
      : max_rows_(max_rows), dim_(dim), formats_(formats) {}

 private:
  std::int64_t max_rows_, dim_;
  ActFormats formats_;
};

// The experts that each row of a batch goes to, `used` of `experts`, and their weights: written by Ops::route(), read
// by the other operations of experts. A pair is a row and one of its experts; the order in which pairs lie in the
// outputs of Ops::matmul_experts() is the device's own. Allocated once for the largest batch.
class ExpertChoice {
 public:
  virtual ~ExpertChoice() = default;
  int max_rows() const noexcept { return max_rows_; }
  int experts() const noexcept { return experts_; }
  int used() const noexcept { return used_; }

 protected:
  ExpertChoice(int max_rows, int experts, int used) noexcept : max_rows_(max_rows), experts_(experts), used_(used) {}

 private:
  int max_rows_, experts_, used_;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string description() const = 0;  // one line for the log
  // Whether host code and the device share memory: then a saved state is handed over and not copied.
  virtual bool shares_host_memory() const noexcept = 0;

  // Device memory, aligned to 64 bytes; contents undefined. Throws Error(out_of_memory).
  virtual Buffer allocate(std::size_t bytes) = 0;
  // Host memory that the device reads and writes directly (pinned), aligned to 64 bytes. Throws Error(out_of_memory).
  virtual Buffer allocate_host(std::size_t bytes) = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  // `data`: rows x cols elements of `type` in GGUF layout, rows one after the other. Waits until it is loaded.
  virtual std::unique_ptr<Weight> load_weight(DType type, std::int64_t rows, std::int64_t cols,
                                              const std::byte* data) = 0;
  // `experts` such matrices, of which each begins `stride` bytes after the one before.
  virtual std::unique_ptr<Weight> load_experts(DType type, int experts, std::int64_t rows, std::int64_t cols,
                                               const std::byte* data, std::size_t stride) = 0;
  virtual std::unique_ptr<Activation> make_activation(std::int64_t max_rows, std::int64_t dim, ActFormats formats) = 0;
  virtual std::unique_ptr<ExpertChoice> make_expert_choice(int max_rows, int experts, int used) = 0;

  virtual Ops& ops() noexcept = 0;
};

// The CPU backend. `threads` < 1: as many as there are usable cores. Any number gives the same bits.
// BANKML_ISA=portable|avx2|avx512 limits the instruction set used (for tests and bug reports).
std::unique_ptr<Device> make_cpu_device(int threads);

}  // namespace bankml
