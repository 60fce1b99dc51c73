#pragma once
// The measurements of bankml-bench: each gives figures with the limit of the machine they are held against.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bankml/device/device.hpp"
#include "bankml/model/model.hpp"
#include "support/figure.hpp"
#include "support/machine.hpp"

namespace bankml::bench {

struct Plan {
  std::vector<int> prefill = {32, 128, 512, 2000};  // lengths; each from an empty sequence
  std::vector<int> decode = {16, 512, 2000};        // tokens held before
  std::vector<int> held = {500, 1000, 3000};        // tokens of the conversations that take turns
  std::vector<int> sequences = {1};                 // decoded together
  std::vector<int> rows = {512};                    // of a prefill pass at most
  std::vector<DType> kv = {DType::f16};
  int runs = 5;
  int decode_steps = 32;  // tokens of one run
};

// One model on one device; `threads`: those of the CPU, 0 on a GPU.
class Measurement {
 public:
  // `step()` is called after each run. Throws what Model::load throws.
  Measurement(const Plan& plan, const std::filesystem::path& path, std::string name, Device& device, int threads,
              const MachineLimits& limits, std::function<void()> step);

  void run(std::vector<Figure>& out);
  static int steps(const Plan& plan);  // calls of step() in one run()

 private:
  void load(std::vector<Figure>& out);
  void check_held() const;  // throws Error(invalid_request) if the model has less context
  void prefill(std::vector<Figure>& out, DType kv, int rows);
  void decode(std::vector<Figure>& out, DType kv, int sequences);
  void take_turns(std::vector<Figure>& out, DType kv);
  Figure figure(const char* what, DType kv, int tokens, int batch, const char* unit) const;
  std::vector<TokenId> random_tokens(int n, unsigned seed) const;
  double layer_macs(bool of_floats) const;    // multiply-adds of one row with quantised weights, or with others
  double attention_macs(double cells) const;  // the same for attention over that many cells
  double kv_bytes(double tokens, DType kv) const;

  const Plan& plan_;
  std::filesystem::path path_;
  std::string name_;
  int threads_;
  MachineLimits limits_;
  std::function<void()> step_;
  Device& device_;
  std::unique_ptr<Model> model_;
};

}  // namespace bankml::bench
