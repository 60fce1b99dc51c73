#pragma once
// How layers turn positions into rotations, and which of them see only a window (docs/architectures.md, sections 3 and
// 4). All throw Error(invalid_request) naming the key or the setting.
#include "bankml/model/config.hpp"
#include "model/architecture.hpp"
#include "model/config_keys.hpp"

namespace bankml {

void check_overrides(const RopeOverrides& user);

// Of the layers that `config` has, and what is the same for all.
void read_rotation(const ConfigKeys& keys, const RopeOverrides& user, const Architecture& architecture,
                   ModelConfig& config);

// After read_rotation(): layers with a window keep the file's own base and scale, whatever the user asks for. `stored`:
// layers in the file's arrays.
void read_windows(const ConfigKeys& keys, RopeOverrides user, const WindowRule& rule, int stored, ModelConfig& config);

}  // namespace bankml
