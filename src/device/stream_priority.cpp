#include "bankml/device/stream_priority.hpp"

namespace bankml {

std::unique_ptr<Stream> make_stream(Device& device, StreamPriority priority) {
  if (auto* const prioritizes = dynamic_cast<PrioritizesStreams*>(&device)) {
    return prioritizes->make_stream_of(priority);
  }
  return device.make_stream();
}

}  // namespace bankml
