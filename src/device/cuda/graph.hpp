#pragma once
// A stream's work, recorded once and run again and again without the cost of its launches. Arguments are frozen; what
// they point to is not.
#include <memory>

#include "bankml/device/device.hpp"
#include "namespace.hpp"

namespace KERNEL_NAMESPACE {

class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch(Stream& stream) = 0;
};

// From here to end_capture(), kernels and copies queued on the stream are recorded and not run. Events, and waiting for
// the stream, throw Error(device) in between. The memory named must outlive the graph.
void begin_capture(Stream& stream);
std::unique_ptr<Graph> end_capture(Stream& stream);

// Kernels that are to be queued on a stream before anything else is asked of it.
class Deferred {
 public:
  virtual ~Deferred() = default;
  virtual void flush(Stream& stream) = 0;
};

// `deferred->flush(stream)` is called once: before the stream's next copy, event or wait, or at its end. nullptr:
// nothing is deferred any more. Launches don't count: they are what is deferred.
void set_deferred(Stream& stream, Deferred* deferred);

}  // namespace KERNEL_NAMESPACE
