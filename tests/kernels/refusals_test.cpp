// Models that can't be run on a device with memory of its own: refused by name, before any of its memory is taken.
#include <gtest/gtest.h>

#include <vector>

#include "bankml/model/model.hpp"
#include "kernels/host_device.hpp"
#include "support/expect_error.hpp"
#include "support/tiny_model.hpp"

namespace bankml {
namespace {

using test::GgufBuilder;
using test::tiny_model;

void expect_refused(const GgufBuilder& builder, ErrorKind kind, const std::string& part) {
  host::HostDevice device;
  const std::vector<std::byte> file = builder.build();
  test::expect_error(kind, part, [&] { Model::load(GgufFile::parse(file, "test.gguf"), device); });
  EXPECT_EQ(device.runtime().count(host::Operation::allocation), 0) << part;
}

TEST(Refusals, OfArchitecturesAndTensorsTakeNoMemory) {
  expect_refused(tiny_model({.architecture = "mamba"}), ErrorKind::unsupported, "architecture 'mamba'");
  expect_refused(tiny_model().remove_tensor("blk.1.ffn_down.weight"), ErrorKind::invalid_request,
                 "tensor 'blk.1.ffn_down.weight'");
  expect_refused(tiny_model({.experts = 4}).remove_tensor("blk.1.ffn_down_exps.weight"), ErrorKind::invalid_request,
                 "tensor 'blk.1.ffn_down_exps.weight'");
  expect_refused(tiny_model({.experts = 4}).f32_tensor("blk.1.ffn_gate.0.weight", {1}, {0}), ErrorKind::unsupported,
                 "tensor 'blk.1.ffn_gate.0.weight'");
}

TEST(Refusals, OfHeadsThatTheKernelsCannotAttendTakeNoMemory) {
  expect_refused(tiny_model({.head_dim = 20}), ErrorKind::unsupported,
                 "test.gguf: heads of length 20, expected a multiple of 8 up to 1024");
  expect_refused(tiny_model({.heads = 1, .kv_heads = 1, .head_dim = 2048}), ErrorKind::unsupported,
                 "heads of length 2048");
  expect_refused(tiny_model({.heads = 1, .kv_heads = 1, .head_dim = 1024}), ErrorKind::unsupported,
                 "1024 rotated elements of a head, expected at most 512");
}

TEST(Refusals, OfMoreExpertsThanTheKernelsChooseTakeNoMemory) {
  expect_refused(tiny_model({.hidden = 32, .experts = 40, .experts_used = 33}), ErrorKind::unsupported,
                 "33 experts for each row, expected at most 32");
}

TEST(Refusals, AreTheDevicesAndNotTheCpus) {
  const auto cpu = make_cpu_device(1);
  const std::vector<std::byte> file = tiny_model({.head_dim = 20}).build();
  EXPECT_NE(Model::load(GgufFile::parse(file, "test.gguf"), *cpu), nullptr);
}

}  // namespace
}  // namespace bankml
