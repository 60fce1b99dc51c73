#pragma once
// Which shapes of models a device can't compute, so that such a model is refused before its memory is taken.

namespace bankml {

struct ShapeLimits {
  int head_dim = 0;           // length of a head at most
  int head_dim_multiple = 1;  // and a multiple of this
  int rotated = 0;            // elements of a head that are rotated at most
  int experts_used = 0;       // by a row at most
};

// What a device is besides, if there are such shapes.
class LimitsShapes {
 public:
  virtual ~LimitsShapes() = default;
  virtual ShapeLimits shape_limits() const noexcept = 0;
};

}  // namespace bankml
