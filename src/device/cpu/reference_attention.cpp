#include "device/cpu/reference_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace bankml::reference {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int kTile = 64;
constexpr int kQ8Block = 32;
constexpr int kQ8Bytes = 2 + kQ8Block;

float half_at(const std::byte* p) {
  half h;
  std::memcpy(&h, p, sizeof h);
  return to_float(h);
}

float round_to_half(float x) {
  return to_float(to_half(x));
}

float sum8(const float* a) {
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

std::vector<float> widened(DType type, const std::byte* row, int n) {
  std::vector<float> out(static_cast<std::size_t>(n));
  dequantize_row(type, row, n, out.data());
  return out;
}

// The sum over whole groups of 64 elements: four accumulators of sixteen lanes (2.9).
float dot_of_groups(const float* x, const float* y, int n) {
  float s[4][16] = {}, lanes[16];
  for (int i = 0; i + 64 <= n; i += 64) {
    for (int k = 0; k < 4; ++k) {
      for (int l = 0; l < 16; ++l) s[k][l] = std::fma(x[i + 16 * k + l], y[i + 16 * k + l], s[k][l]);
    }
  }
  for (int l = 0; l < 16; ++l) lanes[l] = (s[0][l] + s[2][l]) + (s[1][l] + s[3][l]);
  return sum16(lanes);
}

float dot_f16(const float* x, const float* y, int n) {
  double sum = static_cast<double>(dot_of_groups(x, y, n));
  for (int i = n / 64 * 64; i < n; ++i) sum += static_cast<double>(x[i] * y[i]);
  return static_cast<float>(sum);
}

// The form of a one-row mat-mul with F32 weights (3.4).
float dot_f32(const float* x, const float* y, int n) {
  float sum = dot_of_groups(x, y, n);
  int i = n / 64 * 64;
  for (const int end = n / 8 * 8; i < end; ++i) sum = sum + x[i] * y[i];
  for (; i < n; ++i) sum = std::fma(x[i], y[i], sum);
  return sum;
}

// Q in blocks of 32 integers with a scale rounded to half (2.3).
struct Q8 {
  std::vector<int> quants;
  std::vector<float> scale;
};

Q8 quantized(const float* x, int n) {
  Q8 r;
  for (int block = 0; block < n; block += kQ8Block) {
    float most = 0;
    for (int i = block; i < block + kQ8Block; ++i) most = std::max(most, std::fabs(x[i]));
    const float inverse = most != 0 ? 127.0f / most : 0.0f;
    r.scale.push_back(round_to_half(most / 127.0f));
    for (int i = block; i < block + kQ8Block; ++i) r.quants.push_back(static_cast<int>(std::nearbyint(x[i] * inverse)));
  }
  return r;
}

float dot_q8_0(const std::byte* k, const Q8& q, int n) {
  float acc[8] = {};
  for (int block = 0; block < n / kQ8Block; ++block) {
    const std::byte* p = k + block * kQ8Bytes;
    const float d = half_at(p) * q.scale[static_cast<std::size_t>(block)];
    for (int l = 0; l < 8; ++l) {
      int sum = 0;
      for (int i = 4 * l; i < 4 * l + 4; ++i) {
        sum += static_cast<std::int8_t>(p[2 + i]) * q.quants[static_cast<std::size_t>(block * kQ8Block + i)];
      }
      acc[l] = std::fma(d, static_cast<float>(sum), acc[l]);
    }
  }
  return sum8(acc);
}

// A partial softmax: the largest score, the sum of the weights, the weighted sum of V.
struct Partial {
  float max = kNothing;
  float sum = 0;
  std::vector<float> acc;
};

Partial attend_cells(const KvCells& kv, const QueryRow& row, std::int64_t begin, std::int64_t end) {
  Partial p;
  p.acc.assign(static_cast<std::size_t>(kv.head_dim_v), 0.0f);
  const bool halves = kv.type_v == DType::f16;
  std::vector<float> q(row.q, row.q + kv.head_dim_k);
  if (kv.type_k == DType::f16) std::transform(q.begin(), q.end(), q.begin(), round_to_half);
  Q8 q8;
  if (kv.type_k == DType::q8_0) q8 = quantized(row.q, kv.head_dim_k);
  const float scale = row.softcap != 0 ? row.scale / row.softcap : row.scale;

  for (std::int64_t cell = begin; cell < end; ++cell) {
    if (!row.visible[cell]) continue;
    const std::byte* k = kv.k + cell * static_cast<std::int64_t>(row_bytes(kv.type_k, kv.head_dim_k));
    const std::byte* v = kv.v + cell * static_cast<std::int64_t>(row_bytes(kv.type_v, kv.head_dim_v));
    float s = 0;
    if (kv.type_k == DType::q8_0) s = dot_q8_0(k, q8, kv.head_dim_k);
    if (kv.type_k == DType::f16) s = dot_f16(widened(DType::f16, k, kv.head_dim_k).data(), q.data(), kv.head_dim_k);
    if (kv.type_k == DType::f32) s = dot_f32(widened(DType::f32, k, kv.head_dim_k).data(), q.data(), kv.head_dim_k);
    s = s * scale;
    if (row.softcap != 0) s = row.softcap * std::tanh(s);

    float rescale = 1, weight = 1;
    if (s > p.max) {
      rescale = std::exp(p.max - s);
      p.max = s;
      for (float& a : p.acc) a = halves ? round_to_half(a * rescale) : a * rescale;
    } else {
      weight = std::exp(s - p.max);
    }
    const std::vector<float> values = widened(kv.type_v, v, kv.head_dim_v);
    for (std::size_t d = 0; d < p.acc.size(); ++d) {
      const float a = std::fma(values[d], weight, p.acc[d]);
      p.acc[d] = halves ? round_to_half(a) : a;
    }
    p.sum = std::fma(p.sum, rescale, weight);
  }
  return p;
}

void add_sink(Partial& p, float sink) {
  float rescale = 1, weight = 1;
  if (sink > p.max) {
    rescale = std::exp(p.max - sink);
    p.max = sink;
    for (float& a : p.acc) a = a * rescale;
  } else {
    weight = std::exp(sink - p.max);
  }
  p.sum = std::fma(p.sum, rescale, weight);
}

Partial attend_chunks(const KvCells& kv, const QueryRow& row, int chunks) {
  const std::int64_t length = (kv.cells + chunks - 1) / chunks;
  Partial merged;
  merged.acc.assign(static_cast<std::size_t>(kv.head_dim_v), 0.0f);
  for (std::int64_t begin = 0; begin < kv.cells; begin += length) {
    Partial p = attend_cells(kv, row, begin, std::min(begin + length, kv.cells));
    if (begin == 0 && row.sink) add_sink(p, *row.sink);
    if (chunks == 1) return p;
    if (p.sum == 0) continue;
    const float max = std::max(merged.max, p.max);
    const float old_part = std::exp(merged.max - max), new_part = std::exp(p.max - max);
    for (std::size_t d = 0; d < p.acc.size(); ++d) {
      merged.acc[d] = std::fma(merged.acc[d], old_part, p.acc[d] * new_part);
    }
    merged.sum = std::fma(merged.sum, old_part, p.sum * new_part);
    merged.max = max;
  }
  return merged;
}

// One tile of path C: scores, weights, weighted sum.
void attend_tile(Partial& p, const KvCells& kv, const QueryRow& row, std::int64_t begin) {
  float s[kTile];
  const float scale = row.softcap != 0 ? row.scale / row.softcap : row.scale;
  for (int j = 0; j < kTile; ++j) {
    s[j] = kNothing;
    const std::int64_t cell = begin + j;
    if (cell >= kv.cells || !row.visible[cell]) continue;
    const auto k =
        widened(kv.type_k, kv.k + cell * static_cast<std::int64_t>(row_bytes(kv.type_k, kv.head_dim_k)), kv.head_dim_k);
    float t = 0;
    for (int d = 0; d < kv.head_dim_k; ++d) t = std::fma(row.q[d], k[static_cast<std::size_t>(d)], t);
    s[j] = row.softcap != 0 ? std::tanh(t * scale) * row.softcap : t * scale;
  }
  const float most = *std::max_element(s, s + kTile);
  if (most == kNothing) return;
  if (most > p.max) {
    const float rescale = std::exp(p.max - most);
    p.max = most;
    for (float& a : p.acc) a = a * rescale;
    p.sum = p.sum * rescale;
  }
  double sum = 0;
  for (float& x : s) x = vector_exp(x - p.max);
  for (int group = 0; group < kTile; group += 16) sum += static_cast<double>(sum16(s + group));
  p.sum = static_cast<float>(static_cast<double>(p.sum) + sum);
  for (int j = 0; j < kTile; ++j) {
    const std::int64_t cell = begin + j;
    if (cell >= kv.cells || !row.visible[cell]) continue;
    const auto v =
        widened(kv.type_v, kv.v + cell * static_cast<std::int64_t>(row_bytes(kv.type_v, kv.head_dim_v)), kv.head_dim_v);
    for (std::size_t d = 0; d < p.acc.size(); ++d) p.acc[d] = std::fma(s[j], v[d], p.acc[d]);
  }
}

Partial attend_tiles(const KvCells& kv, const QueryRow& row) {
  Partial p;
  p.acc.assign(static_cast<std::size_t>(kv.head_dim_v), 0.0f);
  for (std::int64_t begin = 0; begin < kv.cells; begin += kTile) attend_tile(p, kv, row, begin);
  if (row.sink) add_sink(p, *row.sink);
  return p;
}

}  // namespace

float sum16(const float* lanes) {
  float b[8];
  for (int l = 0; l < 8; ++l) b[l] = lanes[l] + lanes[l + 8];
  return sum8(b);
}

float vector_exp(float x) {
  const float z = std::fma(x, 0x1.715476p+0f, 0x1.8p23f);
  const float n = z - 0x1.8p23f;
  if (std::fabs(n) > 192) return n <= 0 ? 0.0f : std::numeric_limits<float>::infinity();
  const float b = std::fma(-n, 0x1.7f7d1cp-20f, std::fma(-n, 0x1.62e4p-1f, x));
  const float u = b * b;
  const float high =
      std::fma(std::fma(0x1.0e4020p-7f, b, 0x1.573e2ep-5f), u, std::fma(0x1.555e66p-3f, b, 0x1.fffdb6p-2f));
  const float j = std::fma(high, u, std::fma(0x1.ffffecp-1f, b, 1.0f));
  return std::ldexp(j, static_cast<int>(n));
}

void soft_max(float* out, const float* x, const float* mask, float scale, int n) {
  float most = kNothing;
  for (int i = 0; i < n; ++i) most = std::max(most, out[i] = x[i] * scale + mask[i]);
  double sum = 0;
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int l = i; l < i + 16; ++l) out[l] = vector_exp(out[l] - most);
    sum += static_cast<double>(sum16(out + i));
  }
  for (; i < n; ++i) sum += static_cast<double>(out[i] = std::exp(out[i] - most));
  const float factor = static_cast<float>(1.0 / sum);
  for (i = 0; i < n; ++i) out[i] = out[i] * factor;
}

void attention(float* out, AttentionPath path, int threads, const KvCells& kv, const QueryRow& row) {
  Partial p;
  if (path == AttentionPath::tiled) p = attend_tiles(kv, row);
  if (path == AttentionPath::split) p = attend_chunks(kv, row, threads);
  if (path == AttentionPath::one_chunk) p = attend_chunks(kv, row, 1);
  const float inverse = p.sum == 0 ? 0.0f : 1.0f / p.sum;
  for (int d = 0; d < kv.head_dim_v; ++d) out[d] = p.acc[static_cast<std::size_t>(d)] * inverse;
}

}  // namespace bankml::reference
