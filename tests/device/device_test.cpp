#include "bankml/device/device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "bankml/base/error.hpp"
#include "bankml/device/ops.hpp"
#include "device/cpu/isa.hpp"
#include "device/cpu/memory.hpp"

namespace bankml {
namespace {

using testing::HasSubstr;

bool is_aligned(const Buffer& buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0;
}

TEST(CpuDevice, GivesAlignedMemoryOfAnySize) {
  const auto device = make_cpu_device(1);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{9} << 20}) {
    const Buffer buffer = device->allocate(bytes), host = device->allocate_host(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_TRUE(is_aligned(buffer) && is_aligned(host));
    std::memset(buffer.data(), 1, bytes);
  }
}

// The policy of an address, as the kernel tells it.
struct Placement {
  int mode = -1;
  unsigned long nodes = 0;
};
std::optional<Placement> placement_of(const std::byte* address) {
  constexpr int kMaxNode = 1024;
  unsigned long nodes[kMaxNode / (8 * sizeof(unsigned long))] = {};
  Placement placement;
  if (syscall(SYS_get_mempolicy, &placement.mode, nodes, kMaxNode, address, MPOL_F_ADDR) != 0) return std::nullopt;
  placement.nodes = nodes[0];
  return placement;
}

TEST(Memory, IsPreferredOnTheNodeThatItIsAskedFor) {
  const Buffer near = allocate_memory(std::size_t{9} << 20), anywhere = allocate_memory(std::size_t{9} << 20);
  if (!placement_of(near.data())) GTEST_SKIP() << "this kernel knows no nodes of memory";
  prefer_numa_node(near, 0);
  prefer_numa_node(anywhere, kNoNumaNode);
  EXPECT_EQ(placement_of(near.data())->mode, MPOL_PREFERRED);
  EXPECT_EQ(placement_of(near.data())->nodes, 1u);
  EXPECT_EQ(placement_of(near.data() + (std::size_t{8} << 20))->mode, MPOL_PREFERRED);
  EXPECT_EQ(placement_of(anywhere.data())->mode, MPOL_DEFAULT);
  std::memset(near.data(), 1, near.bytes());
}

TEST(Memory, OfANodeThatIsNotThereLiesAnywhere) {
  const Buffer memory = allocate_memory(std::size_t{9} << 20), little = allocate_memory(100);
  for (const int node : {1023, 1'000'000, -7}) prefer_numa_node(memory, node);
  prefer_numa_node(little, 0);
  std::memset(memory.data(), 1, memory.bytes());
  std::memset(little.data(), 1, little.bytes());
}

TEST(CpuDevice, SaysHowMuchMemoryItCouldNotGet) {
  const auto device = make_cpu_device(1);
  try {
    device->allocate(std::size_t{1} << 60);
    FAIL() << "an exabyte";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    EXPECT_THAT(error.what(), HasSubstr("1152921504606846976"));
  }
}

TEST(CpuDevice, CopiesInTheOrderAskedFor) {
  const auto device = make_cpu_device(1);
  const auto stream = device->make_stream();
  const auto event = device->make_event();
  const Buffer buffer = device->allocate(8);
  std::uint64_t in = 42, out = 0;
  stream->copy_to_device(buffer.data(), &in, sizeof in);
  stream->copy_to_host(&out, buffer.data(), sizeof out);
  stream->record(*event);
  event->wait();
  EXPECT_TRUE(event->ready());
  EXPECT_EQ(out, 42u);
}

TEST(CpuDevice, RefusesActivationsThatDoNotFillTheirBlocks) {
  const auto device = make_cpu_device(1);
  EXPECT_THROW(device->make_activation(4, 100, ActFormats::q8), Error);
  EXPECT_THROW(device->make_activation(4, 128, ActFormats::q8_k), Error);
  EXPECT_NO_THROW(device->make_activation(4, 100, ActFormats::f16 | ActFormats::f32));
}

TEST(CpuDevice, LooksUpRowsAndScalesThem) {
  const auto device = make_cpu_device(2);
  const auto stream = device->make_stream();
  const float table[] = {1, 2, 3, 4, 5, 6};
  const auto weight = device->load_weight(DType::f32, 3, 2, reinterpret_cast<const std::byte*>(table));
  const std::int32_t tokens[] = {2, 0};
  float x[4];
  device->ops().embed(*stream, x, *weight, tokens, 2, 10.0f);
  EXPECT_THAT(x, testing::ElementsAre(50, 60, 10, 20));
}

TEST(CpuDevice, GathersRows) {
  const auto device = make_cpu_device(1);
  const auto stream = device->make_stream();
  const float rows[] = {1, 2, 3, 4, 5, 6};
  const std::int32_t which[] = {2, 2, 1};
  float out[6];
  device->ops().gather_rows(*stream, out, rows, which, 3, 2);
  EXPECT_THAT(out, testing::ElementsAre(5, 6, 5, 6, 3, 4));
}

TEST(ActivationFormat, FollowsTheWeightsBlocks) {
  EXPECT_EQ(activation_format(DType::f32), ActFormats::f32);
  EXPECT_EQ(activation_format(DType::bf16), ActFormats::bf16);
  EXPECT_EQ(activation_format(DType::q4_1), ActFormats::q8);
  EXPECT_EQ(activation_format(DType::iq4_nl), ActFormats::q8);
  EXPECT_EQ(activation_format(DType::iq4_xs), ActFormats::q8_k);
}

TEST(MemoryArena, KeepsPiecesApartAndAliveWithoutIt) {
  auto arena = std::make_unique<MemoryArena>();
  Buffer a = arena->allocate(100), b = arena->allocate(100), large = arena->allocate(std::size_t{80} << 20);
  EXPECT_TRUE(is_aligned(a) && is_aligned(b) && is_aligned(large));
  EXPECT_GE(b.data() - a.data(), 100);
  std::memset(a.data(), 1, a.bytes());
  std::memset(b.data(), 2, b.bytes());
  std::memset(large.data(), 3, large.bytes());
  arena.reset();
  EXPECT_EQ(a.data()[99], std::byte{1});
  a = {};
  EXPECT_EQ(b.data()[0], std::byte{2});
}

class IsaLimit : public testing::Test {
 protected:
  ~IsaLimit() override { unsetenv("BANKML_ISA"); }
};

TEST_F(IsaLimit, KeepsToTheInstructionSetNamed) {
  setenv("BANKML_ISA", "portable", 1);
  EXPECT_EQ(chosen_isa(), Isa::portable);
  EXPECT_THAT(make_cpu_device(1)->description(), HasSubstr("portable"));
}

TEST_F(IsaLimit, NeverGoesBeyondWhatTheMachineHas) {
  setenv("BANKML_ISA", "avx512", 1);
  EXPECT_TRUE(isa_available(chosen_isa()));
}

TEST_F(IsaLimit, RefusesAnUnknownName) {
  setenv("BANKML_ISA", "sse9", 1);
  try {
    chosen_isa();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_THAT(error.what(), HasSubstr("sse9"));
  }
}

}  // namespace
}  // namespace bankml
