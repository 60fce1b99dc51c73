#pragma once
// Streams of a device that can put the work of one before that of another.
#include <memory>

#include "bankml/device/device.hpp"

namespace bankml {

// Whose work a device begins first where it has that of several streams: a hint. Device::make_stream() makes streams of
// normal priority.
enum class StreamPriority { low, normal, high };

// What a device is besides, if it has priorities.
class PrioritizesStreams {
 public:
  virtual ~PrioritizesStreams() = default;
  virtual std::unique_ptr<Stream> make_stream_of(StreamPriority priority) = 0;
};

// A stream of this priority where the device has such, else a stream.
std::unique_ptr<Stream> make_stream(Device& device, StreamPriority priority);

}  // namespace bankml
